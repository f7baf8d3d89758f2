"""The published tables and figures that can be run, with the data and the hours they need; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from raychains.core.config import Reproduce
from raychains.core.data_root import data_root, root_of, rooted
from raychains.core.errors import UserError, unknown_name
from raychains.core.user_code import load_file
from raychains.data import catalogue, tabular
from raychains.papers.scales import ALL, NOT_SMOKE, PAPERS, SCALES
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
METHODS = {"csgmcmc": "cSG-MCMC", "atmc": "ATMC", "emcmc": "Entropy-MCMC", "bde": "bde", "dropout": "Dropout"}
METHODS |= {"hmc": "HMC"}
COLUMNS = ("name", "table or figure", "content", "data", *(f"hours,\n{scale}" for scale in NOT_SMOKE))
MACHINES = {"smoke": "two cores", "cpu": "two cores", "gpu": "one GPU", "paper": "one GPU"}


@dataclass(frozen=True)
class Listing:
    """One table or figure of the list."""

    name: str
    """As on the command line: ``table2``, ``emcmc-fig3``; also that of its folder of results."""
    module: str = ""
    """The module of this package that declares its `Study`; empty of a user's own file."""
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

    @property
    def heading(self) -> str:
        """``Table 2: four chains against one``."""
        return ": ".join(filter(None, (self.where, self.title))) or self.name

    @property
    def method(self) -> str:
        """The method of its paper: two papers have a Table 1."""
        return METHODS.get(self.paper, self.paper or "own")


# fmt: off
CONTENTS = (
    Listing("fig1", "csgmcmc.fig1", "csgmcmc", "Fig. 1", "the cyclical step size", (), (0.001, 0.001, 0.001, 0.001)),
    Listing("table1", "csgmcmc.table1", "csgmcmc", "Table 1",
            "test error of single chains on CIFAR", ("cifar10", "cifar100"), (0.0064, 0.48, 7, 21)),
    Listing("fig2", "csgmcmc.mixture_experiments", "csgmcmc", "Fig. 2",
            "25 Gaussians, four chains of 50,000 steps", (), (0.01, 0.05, 0.05, 0.05)),
    Listing("table2", "csgmcmc.table2", "csgmcmc", "Table 2",
            "test error of parallel and single chains on CIFAR", ("cifar10", "cifar100"), (0.0096, 1.2, 18, 53)),
    Listing("table3", "csgmcmc.table3", "csgmcmc", "Table 3",
            "ResNet-50 on ImageNet", ("imagenet",), (0.01, 0, 45, 240)),
    Listing("fig3a", "csgmcmc.fig3a", "csgmcmc", "Fig. 3a",
            "12 samples in weight space", ("cifar100", "cifar10"), (0.0016, 0.13, 0.88, 2.6)),
    Listing("fig3b", "csgmcmc.fig3b", "csgmcmc", "Fig. 3b",
            "test error between two samples", ("cifar100", "cifar10"), (0.0008, 0.16, 2, 4)),
    Listing("fig3c", "csgmcmc.fig3c", "csgmcmc", "Fig. 3c",
            "test error against the number of cycles", ("cifar100", "cifar10"), (0.0016, 0.36, 2.6, 13)),
    Listing("table4", "csgmcmc.mixture_experiments", "csgmcmc", "Table 4",
            "mode coverage of 25 Gaussians", (), (0.01, 0.05, 0.05, 0.05)),
    Listing("fig5", "csgmcmc.mixture_experiments", "csgmcmc", "Fig. 5",
            "25 Gaussians, one chain of 50,000 steps", (), (0.01, 0.05, 0.05, 0.05)),
    Listing("fig4", "csgmcmc.fig4", "csgmcmc", "Fig. 4",
            "predictive entropy on notMNIST", ("mnist", "notmnist"), (0.01, 0.3, 0.3, 0.2)),
    Listing("table5", "csgmcmc.table5", "csgmcmc", "Table 5",
            "effective sample sizes on Bayesian logistic regression", ("uci",), (0.01, 0.2, 0.2, 0.1)),
    Listing("atmc-table1", "atmc.atmc_tables", "atmc", "Table 1",
            "CIFAR-10 under ResNet++", ("cifar10",), (0.01, 0.7, 5, 30)),
    Listing("atmc-table2", "atmc.atmc_tables", "atmc", "Table 2",
            "ImageNet under ResNet++", ("imagenet",), (0.01, 0, 60, 500)),
    Listing("atmc-calibration", "atmc.atmc_calibration", "atmc", "Figs. 2 and 3",
            "calibration in 8 bins", ("cifar10", "imagenet"), (0.01, 0.5, 50, 340)),
    Listing("emcmc-fig2", "emcmc.emcmc_fig2", "emcmc", "Figs. 2, 7, 8",
            "a sharp and a flat mode", (), (0.001, 0.005, 0.005, 0.005)),
    Listing("emcmc-fig3", "emcmc.emcmc_fig3", "emcmc", "Fig. 3",
            "logistic regression on MNIST's 1 and 7", ("mnist",), (0.01, 0.05, 0.05, 0.05)),
    Listing("emcmc-fig4", "emcmc.emcmc_fig4", "emcmc", "Fig. 4",
            "eigenspectrum of the diagonal Fisher", ("cifar100", "cifar10"), (0.002, 0.14, 3, 4)),
    Listing("emcmc-fig5", "emcmc.emcmc_fig5", "emcmc", "Fig. 5",
            "loss around samples, and between θ and θₐ", ("cifar100", "cifar10"), (0.002, 0.14, 3, 6)),
    Listing("emcmc-table1", "emcmc.emcmc_table1", "emcmc", "Table 1",
            "test accuracy on CIFAR", ("cifar10", "cifar100"), (0.01, 0.55, 8, 28)),
    Listing("emcmc-corrupted", "emcmc.emcmc_corrupted", "emcmc", "Table 1b",
            "accuracy on corrupted CIFAR-10", ("cifar10", "cifar10-c"), (0.02, 0.6, 1.5, 5)),
    Listing("emcmc-imagenet", "emcmc.imagenet", "emcmc", "Table 1c",
            "ResNet-50 on ImageNet", ("imagenet",), (0.01, 0, 35, 180)),
    Listing("emcmc-table2", "emcmc.emcmc_table2", "emcmc", "Table 2",
            "out-of-distribution detection and calibration",
            ("cifar10", "svhn", "cifar100", "mnist", "notmnist"), (0.01, 0.7, 8, 28)),
    Listing("emcmc-ablations", "emcmc.ablations", "emcmc", "App. A.2, C; Tables 3, 4, 6–9, Fig. 6",
            "one setting of Entropy-MCMC at a time", ("cifar10",), (0.01, 0.16, 16, 48)),
    Listing("theorem1", "theory.theorem1", "csgmcmc", "Theorem 1",
            "bias and mean squared error against the number of steps", (), (0.001, 0.2, 0.2, 0.2)),
    Listing("theorem2", "theory.theorem2", "csgmcmc", "Theorem 2, App. G; Entropy-MCMC's Theorem 1",
            "W₂ to the target against the bounds", (), (0.002, 0.01, 0.01, 0.01)),
    Listing("bde-table", "regression.bde_table", "bde", "Benchmark",
            "airfoil and bike sharing at equal gradient evaluations",
            ("uci-airfoil", "uci-bikesharing"), (0.01, 0.7, 5, 40)),
    Listing("uci-table", "regression.uci_table", "dropout", "Readme",
            "five UCI tables on the classic splits",
            ("uci-yacht", "uci-concrete", "uci-energy", "uci-airfoil", "uci-protein"), (0.02, 1.5, 30, 400)),
    Listing("hmc-cifar10", "fidelity.hmc_cifar10", "hmc", "Metrics",
            "agreement with full-batch HMC on CIFAR-10, and total variation to it",
            ("cifar10", "hmc-cifar10"), (0.02, 7, 18, 220)),
    Listing("true-posterior", "fidelity.true_posterior", "hmc", "Study",
            "which methods come near the true posterior of small networks",
            ("uci-concrete", "uci-bikesharing", "uci-protein"), (0.02, 0.6, 1, 8)),
    Listing("posterior-budgets", "fidelity.posterior_budgets", "hmc", "Study",
            "how to spend gradients: settings, chains and cycles against the distance to true posteriors",
            ("uci-concrete", "uci-bikesharing", "uci-protein"), (0.02, 1, 4, 4)),
)
# fmt: on
"""In the order of the index page."""


def select(names: Sequence[str]) -> list[Listing]:
    """Return the listings of these names in the order of the list, then the studies of files; ``all`` stands for every
    published one.

    Raises:
        UserError: no name, an unknown one, or a file that declares no study.
    """
    files = [name for name in names if name.endswith(".py")]
    known = [entry.name for entry in CONTENTS]
    if not names:
        raise UserError(f"names must be all or some of {', '.join(known)}, got nothing; `list=True` shows them")
    for name in names:
        if name not in known and name != "all" and name not in files:
            raise unknown_name("names", name, ["all", *known])
    return [entry for entry in CONTENTS if "all" in names or entry.name in names] + [own(file) for file in files]


def own(file: str) -> Listing:
    """Return the study that a file declares; the file is imported.

    Raises:
        UserError: it cannot be imported, it declares none or several, or one with a published table's name.
    """
    held = {id(one): one for one in vars(load_file("names", file)).values() if isinstance(one, Listing)}
    found = [one for one in held.values() if not one.module]  # published ones may be imported there
    if len(found) != 1:
        has = " and ".join(one.name for one in found) or "none"
        raise UserError(f"names must be files that declare one Study each, got {file!r}, which has {has}")
    if any(found[0].name == entry.name for entry in CONTENTS):
        has = found[0].name
        raise UserError(f"names must be files of studies with names of their own, got {file!r}, which has {has}")
    return found[0]


def listed(name: str) -> dict[str, Any]:
    """Return a listing's fields, with which its experiment begins."""
    (entry,) = select([name])
    return vars(entry)


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
    for name, title in PAPERS.items():
        say(console, f"{name}: {title}")
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
