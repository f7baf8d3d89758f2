"""Which data sets are there: what an experiment needs and does not have makes it "not run", with the reason."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from raychains.data import catalogue
from raychains.data.root import data_root, root_of
from raychains.errors import UserError
from raychains.store import Root

LABELS = {
    "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "notmnist": "notMNIST (sample)", "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100", "svhn": "SVHN", "cifar10-c": "CIFAR-10-C", "uci": "UCI (australian, german, heart)",
    "imagenet": "ImageNet",
}  # fmt: skip
FOLDERS = {"uci": "uci", "cifar10-c": "CIFAR-10-C"}


class Unfit(UserError):
    """A scale cannot run a part, whatever data there are: the part is not run, and nothing is wrong."""


def lacks(names: Iterable[str]) -> str:
    """Why the first of these data sets that is missing is; nothing where all are there. Nothing is downloaded."""
    missing = [LABELS[name] for name in names if not there(name)]
    # Without the root's path: results are committed and shown elsewhere.
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not in the data root" if missing else ""


def there(name: str) -> bool:
    """Whether a data set lies in the data root, as far as its files' presence tells."""
    try:
        if name == "imagenet":  # a prepared set, which may lie behind a URI
            return Root(root_of()).exists("imagenet/manifest.json")
        root = data_root()
        if name in FOLDERS:
            return (root / FOLDERS[name]).is_dir()
        entry = catalogue.entry(name)
        files = [root / entry.folder / file.name for split in entry.splits.values() for file in split]
        return all(_lies(path) for path in files)
    except UserError:
        return False


def _lies(path: Path) -> bool:
    return path.is_file() or (path.suffix == ".gz" and path.with_suffix("").is_file())
