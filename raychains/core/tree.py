"""Inputs of several tensors: nests of dicts and tuples whose leaves are tensors with the examples on axis 0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from raychains.core.errors import UserError

Tree = Any
"""A tensor, or a dict or a tuple of trees."""
OUTPUT = "logits"
"""The entry that is taken of a network's output which is no tensor, as Hugging Face names it."""


def mapped(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return the tree of ``function`` of each leaf, and of the leaves of ``others`` at its place."""
    if isinstance(tree, Mapping):
        return {key: mapped(function, part, *(other[key] for other in others)) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(mapped(function, *parts) for parts in zip(tree, *others, strict=True))
    return function(tree, *others)


def leaves(tree: Tree) -> list[Any]:
    """Return the leaves in order."""
    return [leaf for _, leaf in named(tree)]


def named(tree: Tree, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its place, as in ``['mask']`` or ``[0]``; that of a tree of one leaf is empty."""
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            yield from named(part, f"{place}[{key!r}]")
    elif isinstance(tree, tuple):
        for i, part in enumerate(tree):
            yield from named(part, f"{place}[{i}]")
    else:
        yield place, tree


def size(tree: Tree) -> int:
    """Return the number of examples."""
    return len(leaves(tree)[0])


def check_sizes(tree: Tree, field: str) -> None:
    """Refuse inputs whose arrays hold different numbers of examples.

    Raises:
        UserError: they do.
    """
    sizes = {place: len(leaf) for place, leaf in named(tree, field)}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{n} in {place}" for place, n in sizes.items())
        raise UserError(f"{field} must hold as many examples in each of its arrays, got {told}")


def at(tree: Tree, index: Any) -> Tree:
    """Return some of the examples: each leaf at ``index``."""
    return mapped(lambda leaf: leaf[index], tree)


def sent(tree: Tree, *to: Any, **how: Any) -> Tree:
    """Return the tree with `Tensor.to` of each leaf."""
    return mapped(lambda leaf: leaf.to(*to, **how), tree)


def cast(tree: Tree, dtype: Any, copy: bool = False) -> Tree:
    """Return the tree with floating leaves in ``dtype``; integers stay integers."""
    return mapped(
        lambda leaf: leaf.to(dtype, copy=copy) if leaf.is_floating_point() else leaf.clone() if copy else leaf,
        tree,
    )


def arguments(inputs: Tree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return how a network is called with its inputs: ``model(**inputs)`` of a dict, ``model(*inputs)`` of a tuple."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def picked(returned: Any, output: str | int | None = None) -> Any:
    """Return the tensor that a likelihood takes of what a network returned.

    Args:
        returned: the tensor; or a dict, an object or a tuple that holds it.
        output: its key, attribute or position there; None is ``logits``.

    Raises:
        LookupError: there is none, in one line.
    """
    if isinstance(returned, Tensor):
        return returned
    key = OUTPUT if output is None else output
    try:
        by_name = isinstance(key, str) and not isinstance(returned, Mapping)
        return getattr(returned, key) if by_name else returned[key]  # type: ignore[arg-type]
    except (LookupError, AttributeError, TypeError):
        raise LookupError(
            f"what it returns, a {type(returned).__name__}, has no {key!r}: name its tensor by output="
        ) from None


def described(tree: Tree) -> str:
    """Return dtype and shape of each leaf, as in ``int64 [8, 20]``."""
    parts = ((place, f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}") for place, leaf in named(tree))
    return ", ".join(f"{place} {kind}".strip() for place, kind in parts)
