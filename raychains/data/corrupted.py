"""CIFAR-10-C: CIFAR-10's test images under 19 corruptions of 5 severities (Hendrycks & Dietterich, arXiv:1903.12261)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from raychains.data import declared
from raychains.data.root import data_root
from raychains.data.sets import ImageSet, content_hash
from raychains.errors import UserError, require, unknown_name

CORRUPTIONS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "snow",
    "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
    "speckle_noise", "gaussian_blur", "spatter", "saturate",
)  # fmt: skip
"""The 15 of the benchmark, then the 4 kept for validation."""
SEVERITIES = 5
IMAGES = 10_000
"""Of each severity; a file holds severity 1's, then 2's, …"""
CLASSES = 10
NAME, FOLDER = "cifar10-c", "CIFAR-10-C"


def corrupted(name: str, kind: str, severity: int, root: str | Path | None = None, *, images: int = IMAGES) -> ImageSet:
    """CIFAR-10's test images under one corruption, in the test set's order.

    Args:
        name: ``cifar10-c``.
        kind: one of `CORRUPTIONS`.
        severity: 1 to 5.
        root: the data root, with ``CIFAR-10-C/<kind>.npy`` and ``CIFAR-10-C/labels.npy`` as published; None is
            `raychains.data.root.data_root`'s choice.
        images: of each severity in the files.

    Raises:
        UserError: an unknown name, kind or severity; a file that is missing or not as published.
    """
    if name != NAME:
        raise unknown_name("data set", name, [NAME])
    if kind not in CORRUPTIONS:
        raise unknown_name("corruption", kind, CORRUPTIONS)
    ok = isinstance(severity, int) and not isinstance(severity, bool) and 1 <= severity <= SEVERITIES
    require(ok, "severity", severity, f"be an integer in [1, {SEVERITIES}]")
    base = data_root(None if root is None else str(root))
    folder = base / FOLDER
    stand_ins = declared.find(base)
    if stand_ins is not None:
        images = stand_ins.of(NAME)["test"]
        for file in (f"{kind}.npy", "labels.npy"):
            stand_ins.check(folder / file, NAME)
    part = slice((severity - 1) * images, severity * images)
    total = SEVERITIES * images
    pictures = _part(folder / f"{kind}.npy", (total, 32, 32, 3), part)
    labels = _part(folder / "labels.npy", (total,), part).astype(np.int64)
    if labels.min() < 0 or labels.max() >= CLASSES:
        raise UserError(f"data set {NAME}: labels must lie in [0, {CLASSES - 1}] in {folder / 'labels.npy'}")
    pictures = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
    return ImageSet(
        name=f"{NAME}:{kind}:{severity}",
        images=torch.from_numpy(pictures),
        labels=torch.from_numpy(labels),
        classes=CLASSES,
        fingerprint=content_hash(pictures, labels),
        stand_in=stand_ins is not None,
    )


def _part(path: Path, shape: tuple[int, ...], part: slice) -> np.ndarray:
    """Some rows of an .npy file of bytes, the only ones that are read."""
    if not path.is_file():
        raise UserError(
            f"data set {NAME}: no file {path}; put there: the published arrays of CIFAR-10-C, one <corruption>.npy "
            "each, and labels.npy"
        )
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"data set {NAME}: {path} is no .npy file of numbers: {reason}") from error
    kind = "bytes" if len(shape) > 1 else "integers"
    right = found.dtype == np.uint8 if len(shape) > 1 else np.issubdtype(found.dtype, np.integer)
    if not right or found.shape != shape:
        raise UserError(
            f"data set {NAME}: {path} must hold {kind} of shape {list(shape)}, "
            f"got {found.dtype} of shape {list(found.shape)}"
        )
    return np.array(found[part])
