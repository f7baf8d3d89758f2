"""CIFAR-10-C: CIFAR-10's test images under 19 corruptions of 5 severities (Hendrycks & Dietterich,
arXiv:1903.12261)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from raychains.core.data_root import data_root
from raychains.core.errors import UserError, unknown_name
from raychains.core.validation import integer
from raychains.data import standin_manifest
from raychains.data.sets import ImageSet, content_hash

CORRUPTIONS = tuple(
    [
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "defocus_blur",
        "glass_blur",
        "motion_blur",
        "zoom_blur",
        "snow",
        "frost",
        "fog",
        "brightness",
        "contrast",
        "elastic_transform",
        "pixelate",
        "jpeg_compression",
        "speckle_noise",
        "gaussian_blur",
        "spatter",
        "saturate",
    ]
)
"""The 15 of the benchmark, then the 4 kept for validation."""
SEVERITIES = 5
IMAGES = 10_000
"""Images of each severity; a file holds severity 1's, then 2's, …"""
CLASSES = 10
NAME, FOLDER = "cifar10-c", "CIFAR-10-C"


def corrupted(kind: str, severity: int, root: str | Path | None = None, *, images: int = IMAGES) -> ImageSet:
    """Return CIFAR-10's test images under one corruption, in the test set's order.

    Args:
        kind: one of `CORRUPTIONS`.
        severity: 1 to 5.
        root: the data root, with ``CIFAR-10-C/<kind>.npy`` and ``CIFAR-10-C/labels.npy`` as published; None is
            `raychains.core.data_root.data_root`'s choice.
        images: of each severity in the files.

    Raises:
        UserError: an unknown kind or severity; a file that is missing or not as published.
    """
    if kind not in CORRUPTIONS:
        raise unknown_name("corruption", kind, CORRUPTIONS)
    integer("severity", severity, 1, SEVERITIES)
    base = data_root(None if root is None else str(root))
    folder = base / FOLDER
    stand_ins = standin_manifest.find(base)
    if stand_ins is not None:
        images = stand_ins.of(NAME, "test")["test"]
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
    """Return some rows of an .npy file of bytes, the only ones that are read."""
    if not path.is_file():
        raise UserError(
            f"data set {NAME}: no file {path}; put there: the published arrays of CIFAR-10-C, one <corruption>.npy "
            "each, and labels.npy"
        )
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy's, of its header as Python code, and of archives
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
