"""Chain specs: everything that determines a chain, as plain data: frozen, JSON round-trip, one digest.

A spec holds *parts* (task, sampler, schedule): a kind, an integer revision and JSON settings. The rooms that own
the parts turn them into live objects and validate them; nothing here imports torch, so planning stays light.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, get_args

from raychains.core.errors import UserError, require
from raychains.core.validation import integer, is_int, is_number

JSON = Any
"""A value that JSON can hold."""
Precision = Literal["fp32", "tf32", "bf16", "fp64"]
Compile = Literal["none", "default", "cuda-graphs"]
BatchNorm = Literal["keep", "reestimate", "shared", "refuse"]

MOST_ROWS = 128
"""Rows of a pack at most: each has a thread in its worker."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SOURCE = "source-sha256"
"""The key of `Part.source` in JSON: no setting has a name with a dash."""
FORMAT = 1
"""Version of the JSON form below; a reader refuses a newer one."""


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def canonical_json(value: JSON) -> str:
    """Return one text for one value: sorted keys, no spaces, no NaN. The digest is that of this text.

    Raises:
        UserError: a value that JSON cannot hold, such as nan or a set.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"settings must be values that JSON can hold: {error}") from None


def digest_of(value: JSON) -> str:
    """Return the sha256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Part:
    """A named, versioned ingredient of a chain: ``{"kind": …, "revision": …, **settings}``.

    ``revision`` is the integer that the ingredient's class carries: it is raised by any change that alters
    samples, so that old and new samples never share a digest.
    """

    kind: str
    revision: int
    settings: Mapping[str, JSON] = field(default_factory=dict)
    source: str | None = None
    """sha256 of a user's class, `raychains.core.user_code`; None of a built-in one, and in older versions' specs."""
    facts: Mapping[str, JSON] | None = field(default=None, compare=False)
    """Facts that a stored plan has of a user's class, for readers that do not import it; no part of the JSON form."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def to_json(self) -> dict[str, JSON]:
        source = {} if self.source is None else {_SOURCE: self.source}
        return {"kind": self.kind, "revision": self.revision, **source, **self.settings}

    @classmethod
    def from_json(cls, data: Mapping[str, JSON]) -> Part:
        kind, revision = data.get("kind"), data.get("revision")
        if not isinstance(kind, str) or not isinstance(revision, int) or isinstance(revision, bool):
            raise UserError(f"a part needs a text 'kind' and an integer 'revision', got {dict(data)!r}")
        source = data.get(_SOURCE)
        if source is not None and not _is_sha256(source):
            raise UserError(f"a part's {_SOURCE} must be a sha256, got {source!r}")
        settings = {k: v for k, v in data.items() if k not in ("kind", "revision", _SOURCE)}
        return cls(kind=kind, revision=revision, settings=settings, source=source)

    def __reduce__(self) -> tuple[Any, ...]:  # a mappingproxy does not pickle, and specs travel to actors
        return type(self).from_json, (self.to_json(),)

    def __hash__(self) -> int:
        return hash(canonical_json(self.to_json()))


@dataclass(frozen=True, kw_only=True)
class TaskSpec(Part):
    """A task: ``kind`` is the import path ``module:Class``, ``settings`` its JSON arguments.

    ``fingerprint`` identifies the data: a hash of them, or published checksums, with the split seed.
    """

    fingerprint: str

    def to_json(self) -> dict[str, JSON]:
        return {**super().to_json(), "fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, data: Mapping[str, JSON]) -> TaskSpec:
        fingerprint = data.get("fingerprint")
        if not isinstance(fingerprint, str):
            raise UserError(f"a task needs a text 'fingerprint', got {fingerprint!r}")
        part = Part.from_json({k: v for k, v in data.items() if k != "fingerprint"})
        return cls(kind=part.kind, revision=part.revision, settings=part.settings, fingerprint=fingerprint)

    def __hash__(self) -> int:
        return super().__hash__()


@dataclass(frozen=True, kw_only=True)
class EarlyStop:
    """When a chain of an optimiser stops, and what it keeps: the weights of the lowest loss on examples held out for
    that."""

    share: float
    """Share of the training examples that the chain holds out, drawn from its own random stream; it never steps on
    them."""
    patience: int
    """Epochs in a row without a lower loss on them, after which it makes no more steps."""

    def __post_init__(self) -> None:
        require(is_number(self.share) and 0 < self.share < 1, "early_stop share", self.share, "lie in (0, 1)")
        integer("early_stop patience", self.patience, 1)

    def held_out(self, examples: int) -> int:
        """Return how many of so many training examples are held out: the share, rounded, at least one.

        Raises:
            UserError: none would be left to learn from.
        """
        held = max(1, round(self.share * examples))
        require(held < examples, "early_stop share", self.share, f"leave one of the {examples} training examples")
        return held

    def to_json(self) -> dict[str, JSON]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> EarlyStop:
        """Return what `to_json` wrote.

        Raises:
            UserError: a field missing, unknown or out of range.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        ok = isinstance(data, Mapping) and data.keys() == known
        require(ok, "chain spec: early_stop", data, f"have {' and '.join(sorted(known))}")
        return cls(**data)


@dataclass(frozen=True, kw_only=True)
class ChainSpec:
    """Everything that determines one chain's samples; storage, resources and evaluation are not part of it."""

    task: TaskSpec
    sampler: Part
    schedule: Part
    steps: int
    """Gradient steps of the whole chain."""
    steps_per_epoch: int
    """Steps that one pass over the data takes (1 for densities)."""
    batch_size: int
    """Examples per step (1 for densities)."""
    seed: int
    repeat: int
    """Which independent repetition of the experiment; with ``seed`` and ``chain`` it names the random streams."""
    chain: int
    """Position of the chain in its arm; arms that differ only in their number of chains share the first ones."""
    # Fields below are left out of the JSON at their default, which is therefore frozen for good.
    precision: Precision = "fp32"
    threads: int = 1
    """torch's intra-op threads: other counts give other bits."""
    lanes: int = 1
    """Independent chains stacked on axis 0 of every parameter."""
    block_draws: int = 0
    """Draws per stored block of a low-dimensional target; 0 stores each draw by itself, as networks do."""
    batchnorm: BatchNorm = "keep"
    """BatchNorm's running statistics in samples: keep those of the chain, re-estimate them by a pass over the training
    data, share the chain's among draws that they do not belong to (for ablations), or refuse models that have any."""
    exact: bool = True
    """Equal bytes for equal digests and environments. False lets a GPU tune itself and use kernels that add up in any
    order: the same law, and a resumed chain takes another path."""
    compile: Compile = "none"
    """torch.compile of the network's forward pass, with recorded gradients (``cuda-graphs``) or without, or of a pack's
    steps; never exact."""
    start: str | None = None
    """sha256 of the tensors at which the chain starts; None initialises from the seed."""
    sample_only: tuple[str, ...] = ()
    """Shell patterns of the parameters that are sampled while the others stay at ``start``; () samples all of them."""
    micro_batch: int | None = None
    """Examples of the pieces in which a batch's gradient is added up and normalised by BatchNorm; None takes it
    whole."""
    start_chain: str | None = None
    """Digest of the chain whose last sample this one starts at; None is ``start``, or the seed."""
    early_stop: EarlyStop | None = None
    """When the chain, of an optimiser, stops before its last step, and keeps its best weights as its only sample."""
    pack: int = 0
    """Rows of the vectorised program that steps the chain, with others or alone; other widths give other bits. 0 steps
    it by itself."""
    prior: Part | None = None
    """A prior, `raychains.priors`: the chain's instead of weight decay, or of a local chain one centred at its start;
    None adds none."""

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical JSON: equal digests and environments give equal bytes."""
        return digest_of(self.to_json())

    @property
    def examples(self) -> int:
        """Examples that the steps of all lanes read: an epoch reads N of them, a step of a density one."""
        most = self.steps_per_epoch * self.batch_size
        n = self.sampler.settings.get("num_data", most)
        # The last batch of an epoch may be short; and a setting may weigh the data as another number of them.
        per_epoch = n if most - self.batch_size < n <= most else most
        epochs, rest = divmod(self.steps, self.steps_per_epoch)
        return (epochs * per_epoch + rest * self.batch_size) * self.lanes

    def to_json(self) -> dict[str, JSON]:
        out: dict[str, JSON] = {"format": FORMAT}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.default is MISSING or value != f.default:
                plain = list(value) if isinstance(value, tuple) else value
                out[f.name] = plain.to_json() if isinstance(plain, Part | EarlyStop) else plain
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChainSpec:
        """Return the spec that `to_json` wrote.

        Raises:
            UserError: a newer format, or a field missing, unknown or of the wrong kind.
        """
        read = check_format(data, "chain spec")
        known = {f.name: f for f in dataclasses.fields(cls)}
        unknown = read.keys() - known.keys()
        missing = {n for n, f in known.items() if f.default is MISSING} - read.keys()
        if unknown or missing:
            problem = f"unknown field {min(unknown)!r}" if unknown else f"no field {min(missing)!r}"
            raise UserError(f"chain spec: {problem}; known fields are {', '.join(known)}")
        for name, kind in (("task", TaskSpec), ("sampler", Part), ("schedule", Part)):
            if not isinstance(read[name], Mapping):
                raise UserError(f"chain spec: {name} must be an object, got {read[name]!r}")
            read[name] = kind.from_json(read[name])
        if read.get("early_stop") is not None:
            read["early_stop"] = EarlyStop.from_json(read["early_stop"])
        if read.get("prior") is not None:
            require(isinstance(read["prior"], Mapping), "chain spec: prior", read["prior"], "be an object")
            read["prior"] = Part.from_json(read["prior"])
        patterns = read.get("sample_only", ())
        ok = isinstance(patterns, list | tuple) and all(isinstance(p, str) and p for p in patterns)
        require(ok, "sample_only", patterns, "be a list of patterns of parameter names, such as 'fc.*'")
        made = cls(**{**read, "sample_only": tuple(patterns)})
        made._check()
        return made

    def _check(self) -> None:
        """Refuse values of a stored spec that a chain cannot have."""
        for name in ("steps", "steps_per_epoch", "batch_size", "threads", "lanes"):
            integer(name.replace("_", " "), getattr(self, name), 1)
        for name in ("seed", "repeat", "chain", "block_draws", "pack"):
            integer(name.replace("_", " "), getattr(self, name))
        for name, kinds in (("precision", Precision), ("batchnorm", BatchNorm), ("compile", Compile)):
            value, allowed = getattr(self, name), get_args(kinds)
            require(value in allowed, name, value, f"be {', '.join(allowed[:-1])} or {allowed[-1]}")
        require(self.pack <= MOST_ROWS, "pack", self.pack, f"be at most {MOST_ROWS}")
        if self.micro_batch is not None:
            integer("micro batch", self.micro_batch, 1, self.batch_size, ": at most the batch size")
        require(isinstance(self.exact, bool), "exact", self.exact, "be true or false")
        ok = self.compile == "none" or not self.exact
        require(ok, "compile", self.compile, "be none for exact chains: compiled ones have exact=False")
        self._check_start()
        self._check_early_stop()

    def _check_start(self) -> None:
        """Check where the chain starts, and what is only for chains with a start."""
        ok = self.start is None or _is_sha256(self.start)
        require(ok, "start", self.start, "be the sha256 of the tensors that the chain starts at")
        ok = self.start_chain is None or (_is_sha256(self.start_chain) and self.start is None)
        require(ok, "start_chain", self.start_chain, "be the digest of a chain, without a start beside it")
        begins = self.start is not None or self.start_chain is not None
        ok = self.prior is None or begins or self.prior.kind != "centred"
        require(ok, "prior", self.prior, "be another one than a centred one for a chain without a start")
        patterns = self.sample_only
        allowed = "be left out without a start (init_from): the other parameters stay there"
        require(begins or not patterns, "sample_only", patterns, allowed)

    def _check_early_stop(self) -> None:
        if self.early_stop is None:
            return
        ok = self.lanes == 1 and not self.block_draws
        require(ok, "early_stop", self.early_stop, "be left out for densities: it needs examples to hold out")
        require(self.micro_batch is None, "micro_batch", self.micro_batch, "be left out beside early_stop")


def check_format(data: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return ``data`` without its format number; raise `UserError` for one that this version does not read."""
    number = data.get("format") if isinstance(data, Mapping) else None
    if not is_int(number) or not 1 <= number <= FORMAT:
        raise UserError(
            f"{what}: format must be an integer from 1 to {FORMAT}, got {number!r}; newer files need a newer raychains"
        )
    return {k: v for k, v in data.items() if k != "format"}


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Everything besides the spec that decides a sample's bytes; recorded with every sample."""

    torch: str
    cuda: str | None
    device: str
    """``cpu`` or the GPU's name."""
    cpu_capability: str
    """The instruction set that torch's kernels use, e.g. ``AVX512``."""
    threads: int
    numpy: str
    """Makes a CPU's noise."""

    def to_json(self) -> dict[str, JSON]:
        return dataclasses.asdict(self)
