"""The published tables and figures that can be run, with the data and the hours they need; imports nothing heavy."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from raychains.core.config import Reproduce
from raychains.core.data_root import data_root, root_of, rooted
from raychains.core.errors import UserError, unknown_name
from raychains.core.user_code import load_file
from raychains.data import catalogue, tabular
from raychains.papers.scales import ALL, NOT_SMOKE, SCALES
from raychains.report.console import fitting, say, standard_output

DATA = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "notmnist": "notMNIST (sample)", "cifar10": "CIFAR-10"}
DATA |= {"cifar100": "CIFAR-100", "svhn": "SVHN", "cifar10-c": "CIFAR-10-C", "imagenet": "ImageNet"}
DATA |= {"uci": "UCI (australian, german, heart)"}
DATA |= {"uci-airfoil": "UCI airfoil", "uci-bikesharing": "UCI bike sharing", "uci-concrete": "UCI concrete"}
DATA |= {"uci-energy": "UCI energy", "uci-yacht": "UCI yacht", "uci-protein": "UCI protein"}
DATA |= {"hmc-cifar10": "HMC's predictions of CIFAR-10"}
"""The labels of data sets that experiments may need."""
FOLDERS = {"cifar10-c": "CIFAR-10-C", "imagenet": "imagenet/manifest.json"}
FOLDERS |= {"hmc-cifar10": "hmc-cifar10/probabilities.npy"}
FOLDERS |= {f"uci-{name}": f"uci/{table.file}" for name, table in tabular.REGRESSION_TABLES.items()}
COLUMNS = ("name", "table or figure", "content", "data", *(f"hours,\n{scale}" for scale in NOT_SMOKE))
MACHINES = {"smoke": "two cores", "cpu": "two cores", "gpu": "one GPU", "paper": "one GPU"}


@dataclass(frozen=True)
class Paper:
    """The source of published tables."""

    method: str
    """Its name in lists, where two papers have a Table 1."""
    citation: str


PAPERS: Mapping[str, Paper] = {
    "csgmcmc": Paper(
        "cSG-MCMC",
        "Zhang, Li, Zhang, Chen, Wilson: Cyclical Stochastic Gradient MCMC for Bayesian Deep Learning, ICLR 2020",
    ),
    "atmc": Paper("ATMC", "Heek, Kalchbrenner: Bayesian Inference for Large Scale Image Classification, 2019"),
    "emcmc": Paper("Entropy-MCMC", "Li, Zhang: Entropy-MCMC: Sampling from Flat Basins with Ease, ICLR 2024"),
    "bde": Paper(
        "bde",
        "scikit-learn-contrib/bde: Bayesian deep ensembles by MILE (Sommer et al.: Microcanonical Langevin Ensembles, "
        "ICLR 2025)",
    ),
    "dropout": Paper(
        "Dropout", "Gal, Ghahramani: Dropout as a Bayesian Approximation, ICML 2016 (yaringal/DropoutUncertaintyExps)"
    ),
    "hmc": Paper(
        "HMC", "Izmailov, Vikram, Hoffman, Wilson: What Are Bayesian Neural Network Posteriors Really Like?, ICML 2021"
    ),
    "ours": Paper("ours", "studies that no paper has"),
}
"""In the order of lists."""


@dataclass(frozen=True)
class Listing:
    """One table or figure of the list."""

    name: str
    """As on the command line: ``table2``, ``emcmc-fig3``; also that of its folder of results."""
    paper: str = ""
    """A key of `PAPERS`, or any other source in words."""
    where: str = ""
    """``Table 2``, ``Fig. 3c``, ``Theorem 1``."""
    title: str = ""
    """Its content in a few words."""
    needs: tuple[str, ...] = ()
    """The data sets of its parts, keys of `DATA`."""
    hours: tuple[float, ...] = ()
    """Hours at smoke, cpu, gpu and paper, fixed before anything is run: of two cores, from gpu on of one GPU; empty
    where nobody has estimated them."""
    study: str = ""
    """The import path of its `Study`, ``MODULE:VARIABLE``; empty of the `Study` itself."""

    @property
    def heading(self) -> str:
        """``Table 2: four chains against one``."""
        return ": ".join(filter(None, (self.where, self.title))) or self.name

    @property
    def method(self) -> str:
        """The method of its paper, or its source."""
        return PAPERS[self.paper].method if self.paper in PAPERS else self.paper or "own"

    @property
    def citation(self) -> str:
        """Its paper, or its source."""
        return PAPERS[self.paper].citation if self.paper in PAPERS else self.paper


@cache
def published() -> tuple[Listing, ...]:
    """Return the published tables and figures, as the files of the papers' folders state them; no file is imported.

    A file assigns each at its top level and states the fields of `Listing` as literals: ``STUDY = rp.Study(name=…,
    paper=…, where=…, title=…, needs=…, hours=…, …)``. The list is paper by paper, in the order of `PAPERS`: its tables,
    its figures, then all else, each by number.
    """
    found = [one for file in Path(__file__).parent.glob("*/*.py") for one in _stated(file)]
    return tuple(sorted(found, key=_place))


def _stated(file: Path) -> Iterator[Listing]:
    """Yield the listings of a paper's file: its assigned calls that name a paper."""
    known = {field.name for field in fields(Listing)}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call(keywords=keywords)):
                stated: dict[str, Any] = {str(one.arg): one.value for one in keywords if one.arg in known}
                if "paper" in stated:
                    literals = {name: ast.literal_eval(value) for name, value in stated.items()}
                    yield Listing(**literals, study=f"raychains.papers.{file.parent.name}.{file.stem}:{variable}")


def _place(listing: Listing) -> tuple[int, int, list[int], str, str]:
    kind = next(rank for rank, word in enumerate(("Table", "Fig", "")) if listing.where.startswith(word))
    numbers = [int(number) for number in re.findall(r"\d+", listing.where)]
    return list(PAPERS).index(listing.paper), kind, numbers, listing.where, listing.name


def select(names: Sequence[str]) -> list[Listing]:
    """Return the listings of these names in the order of the list, then the studies of files; ``all`` stands for every
    published one.

    Raises:
        UserError: no name, an unknown one, or a file that declares no study.
    """
    files = [name for name in names if name.endswith(".py")]
    known = [entry.name for entry in published()]
    if not names:
        raise UserError(f"names must be all or some of {', '.join(known)}, got nothing; `list=True` shows them")
    for name in names:
        if name not in known and name != "all" and name not in files:
            raise unknown_name("names", name, ["all", *known])
    return [entry for entry in published() if "all" in names or entry.name in names] + [own(file) for file in files]


def own(file: str) -> Listing:
    """Return the study that a file declares; the file is imported.

    Raises:
        UserError: it cannot be imported, it declares none or several, or one with a published table's name.
    """
    held = {id(one): one for one in vars(load_file("names", file)).values() if isinstance(one, Listing)}
    known = {entry.name: entry for entry in published()}
    # Published ones may be imported there.
    found = [one for one in held.values() if one.name not in known or load(known[one.name]) is not one]
    if len(found) != 1:
        has = " and ".join(one.name for one in found) or "none"
        raise UserError(f"names must be files that declare one Study each, got {file!r}, which has {has}")
    (study,) = found
    if study.name in known:
        raise UserError(f"names must be files of studies with names of their own, got {file!r}, which has {study.name}")
    return study


def load(listing: Listing) -> Any:
    """Return the `Study` of a listing, whose module is imported; a user's own listing is one."""
    module, _, variable = listing.study.partition(":")
    return getattr(import_module(module), variable) if module else listing


def missing_data(names: Iterable[str]) -> str:
    """Return which of these data sets are missing as a sentence; empty where all are there. Nothing is downloaded."""
    missing = [DATA[name] for name in names if not in_data_root(name)]
    # Without the root's path: results are committed and shown on other machines.
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in the data root" if missing else ""


def in_data_root(name: str) -> bool:
    """Return whether a data set's files lie in the data root; they are not read."""
    try:
        if name == "imagenet" and "://" in root_of():  # a prepared set
            from raychains.store import Storage  # with torch

            return Storage(root_of()).exists("imagenet/manifest.json")
        root = data_root()
        if name == "uci":
            return all((root / "uci" / table.file).is_file() for table in tabular.TABLES.values())
        if name in FOLDERS:
            return (root / FOLDERS[name]).exists()
        entry = catalogue.entry(name)
        files = [root / entry.folder / file.name for split in entry.splits.values() for file in split]
        return all(f.is_file() or (f.suffix == ".gz" and f.with_suffix("").is_file()) for f in files)
    except UserError:
        return False


def show(options: Reproduce) -> None:
    """Print the chosen listings, or all, with their content, the data that they need, and their estimated hours at each
    scale.

    Raises:
        UserError: an unknown name.
    """
    console = standard_output()
    listings = select(options.names or ["all"])
    with rooted(options.data_root):
        rows = [_row(one) for one in listings]

    def build(left_out: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE, collapse_padding=True, pad_edge=False)
        for number, name in enumerate(COLUMNS):
            if number not in left_out:
                hours = name.startswith("hours")
                table.add_column(name, justify="right" if hours else "left", no_wrap=hours or name == "name")
        for row in rows:
            table.add_row(*(cell for number, cell in enumerate(row) if number not in left_out))
        return table

    console.print(fitting(console, build, [COLUMNS.index("content")], whole=False))
    for scale in NOT_SMOKE:
        say(console, f"{scale}: {SCALES[scale]}; estimated hours of {MACHINES[scale]}")
    for name, paper in PAPERS.items():
        say(console, f"{name}: {paper.citation}")
    say(console, "chains and gradient evaluations: raychains reproduce NAME --scale SCALE --dry-run")


def _row(listing: Listing) -> list[str | Text]:
    """Return a listing's cells in the order of `COLUMNS`."""
    data = [Text(DATA[d]) if in_data_root(d) else Text(f"{DATA[d]} (missing)", style="yellow") for d in listing.needs]
    hours = [hours_at(listing, scale) for scale in NOT_SMOKE]
    return [
        listing.name,
        ": ".join(filter(None, (listing.paper, listing.where))),
        listing.title,
        Text(", ").join(data),
        *hours,
    ]


def hours_at(listing: Listing, scale: str) -> str:
    """Return the estimated hours at a scale as text; a dash where nothing runs."""
    estimate = listing.hours[ALL.index(scale)] if listing.hours else 0
    return f"≈ {estimate:g}" if estimate else "–"
