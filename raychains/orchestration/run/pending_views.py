"""The views that an evaluation queue works on: that of every arm and group, or those that a caller requested."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from raychains.core.errors import UserError
from raychains.core.sample import THETA
from raychains.core.spec import ChainSpec
from raychains.orchestration.run.sample_pool import Pooled, SamplePool
from raychains.planning.comparison import Arm, Comparison
from raychains.planning.views import Key, Member, Request, key_of


@dataclass(eq=False, kw_only=True)
class PendingViews:
    """One view, and the state of its evaluation."""

    request: Request
    chains: list[str]
    """Digests of the chains that it is formed from, in the arm's order."""
    members: Sequence[Pooled] | None = None
    """Its samples in their order; None: all samples of its chains, as they come."""
    arm: Arm | None = None
    """The arm, whose variables and shares of chains count for all of its samples; ``members`` have theirs."""
    weights: Sequence[float] | None = None
    """Weights of the members; None where all are equal."""
    version: int = 0
    """Rises when its samples change, or are predicted again: a summary of an older version is discarded."""
    asked: int = -1
    """The version that a summary was asked for."""
    done: bool = False

    def selected(self, pool: SamplePool, variable: str | None) -> Sequence[Pooled]:
        """Return its samples, in the order of views."""
        if self.members is not None:
            return self.members
        found = pool.select(self.chains, variable=variable)
        return found if self.arm is None else [p for p in found if self.arm.takes(p.record.meta.variable)]

    def weights_of(self, selected: Sequence[Pooled]) -> Sequence[float] | None:
        """Return the weights of the samples that were selected; None where all weigh the same."""
        if self.members is not None or self.arm is None:
            return self.weights
        return self.arm.weights([p.record.meta.digest for p in selected])


class Views:
    """Views in their order, found by the chains that they are formed from: a run may have thousands of both."""

    def __init__(self, views: Iterable[PendingViews]) -> None:
        self._all = dict.fromkeys(views)
        self._by_chain: dict[str, dict[PendingViews, None]] = {}
        for view in self._all:
            for digest in view.chains:
                self._by_chain.setdefault(digest, {})[view] = None
        self._waiting = {view for view in self._all if not view.done}

    def __iter__(self) -> Iterator[PendingViews]:
        return iter(self._all)

    def __contains__(self, view: object) -> bool:
        return view in self._all

    @property
    def done(self) -> bool:
        """Return whether all of them have a result."""
        return not self._waiting

    def of(self, digests: Iterable[str]) -> list[PendingViews]:
        """Return those that any of these chains belongs to."""
        return list({view: None for digest in digests for view in self._by_chain.get(digest, ())})

    def settle(self, view: PendingViews, done: bool) -> None:
        """Record whether the view has a result."""
        view.done = done
        if view in self._all and not done:
            self._waiting.add(view)
        else:
            self._waiting.discard(view)

    def remove(self, view: PendingViews) -> None:
        """Take out a view that will have no result."""
        del self._all[view]
        self._waiting.discard(view)
        for digest in view.chains:
            self._by_chain.get(digest, {}).pop(view, None)

    def without(self, digest: str) -> list[PendingViews]:
        """Form views from their other chains, and remove those that have none; return the others of them."""
        found = list(self._by_chain.pop(digest, ()))
        for view in found:
            view.chains[:] = [d for d in view.chains if d != digest]
            if not view.chains:
                self.remove(view)
        return [view for view in found if view.chains]


def variable(specs: Iterable[ChainSpec]) -> str | None:
    """Return the variable that views are formed from; None is all of them.

    A density's predictive would be a law of θ and θₐ mixed; a network's averages the predictions of both.
    """
    return THETA if any(spec.block_draws for spec in specs) else None


def key(pooled: Pooled) -> Key:
    """Return what identifies a sample among those of a run."""
    return key_of(pooled.record.meta)


def every(comparison: Comparison) -> list[PendingViews]:
    """Return the view of all samples of every arm and group."""
    return [
        PendingViews(request=Request(arm=a, group=g), chains=[spec.digest for spec in group], arm=arm)
        for a, arm in enumerate(comparison.arms)
        for g, group in enumerate(arm.chains)
    ]


def members(
    comparison: Comparison, pool: SamplePool, finished: Collection[str], dropped: Collection[str]
) -> dict[tuple[int, int], list[Member]]:
    """Return by (arm, group) the samples that views are formed from, with their chains' positions in the arm.

    Groups with a chain that is neither finished nor dropped are left out, and so are those without any finished chain.
    """
    found: dict[tuple[int, int], list[Member]] = {}
    for a, arm in enumerate(comparison.arms):
        for g, group in enumerate(arm.chains):
            position = {spec.digest: n for n, spec in enumerate(group)}
            there = [digest for digest in position if digest in finished]
            if there and all(digest in finished or digest in dropped for digest in position):
                selected = pool.select(there, variable=variable(group))
                metas = [p.record.meta for p in selected if arm.takes(p.record.meta.variable)]
                found[a, g] = [(position[meta.digest], meta) for meta in metas]
    return found


def requested(
    comparison: Comparison,
    pool: SamplePool,
    requests: Sequence[Request],
    samples: Mapping[tuple[int, int], Sequence[Member]],
) -> list[PendingViews]:
    """Return the views that a caller requested, in that order.

    Raises:
        UserError: an arm or group that is unknown or not finished, a view of no sample or of more than there are, or
            weights that are none of its samples'; weights of a density's draws.
    """
    by_key = {key(pooled): pooled for pooled in pool.select()}
    return [_requested(comparison, by_key, request, samples.get((request.arm, request.group))) for request in requests]


def _requested(
    comparison: Comparison, by_key: Mapping[Key, Pooled], request: Request, samples: Sequence[Member] | None
) -> PendingViews:
    """Return the view of one request; ``samples`` are those of its arm and group, None unless these are finished."""
    if samples is None:
        raise UserError(
            f"views must be of an arm and group whose chains are all finished, got arm {request.arm}, group "
            f"{request.group}"
        )
    arm, view = comparison.arms[request.arm], request.view
    taken = view.of(samples)
    if not taken or len(taken) < (view.first or 0):
        more = f"its {len(taken)} samples" if taken else "a sample"
        raise UserError(f"view {view.name!r} of arm {arm.name!r} must select {'at most ' * bool(taken)}{more}")
    weights, group = request.weights_of(taken), arm.chains[request.group]
    if request.weights is None:
        weights = arm.weights([meta.digest for meta in taken])
    if weights is not None and variable(group) is not None:
        raise UserError("weights must be equal for a density: every draw counts the same there")
    digests = {meta.digest for meta in taken}
    return PendingViews(
        request=request,
        chains=[spec.digest for spec in group if spec.digest in digests],
        members=[by_key[key_of(meta)] for meta in taken],
        weights=weights,
    )
