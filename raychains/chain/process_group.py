"""The processes that run one chain together: their exchanges, in an order that fixes the bits of every sum.

A global batch is cut into M micro-batches, which are dealt out to the ranks in contiguous runs. Their gradients are the
leaves of one binary tree over 0 … M−1, halved at the middle, whatever the number of ranks: a rank adds up the subtrees
that lie wholly in its run, and who owns a stretch of the parameters adds the rest. So the sum has the same bits for 1,
2 or 64 ranks, and after any resume; all-reduce, whose order follows buckets and ranks, has not.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor

from raychains.core import gpus
from raychains.core.errors import RaychainsError, format_error, require

TIMEOUT = 120.0
"""Seconds that a rank waits for the others."""
PULSE = 5.0
"""Seconds after which a waiting rank 0 tells the others to wait on: no exchange of theirs runs out of time."""
POLL_EVERY = 0.05
"""Seconds between checks of which ranks are ready."""
Node = tuple[int, int]
"""Micro-batches [first, last) below one node of the tree."""


class RankDiffers(RaychainsError):
    """A rank's state is not rank 0's."""


class RankMissing(RaychainsError):
    """A rank did not come to an exchange in time, its process is gone, or its machine failed it."""


class RankFailed(RaychainsError):
    """Another rank's own error, which it published before it left."""


OF_OTHERS = (RankDiffers, RankMissing, RankFailed)
"""Errors of a rank that has no error of its own."""


def run_of(rank: int, size: int, leaves: int) -> Node:
    """Return the micro-batches [first, last) of a rank."""
    return leaves * rank // size, leaves * (rank + 1) // size


def middle(node: Node) -> int:
    """Return where a node is halved."""
    return (node[0] + node[1]) // 2


def cover(run: Node, node: Node) -> list[Node]:
    """Return the largest nodes of the tree below ``node`` that lie wholly in ``run``, in order."""
    if node[0] >= run[1] or node[1] <= run[0]:
        return []
    if run[0] <= node[0] and node[1] <= run[1]:
        return [node]
    m = middle(node)
    return cover(run, (node[0], m)) + cover(run, (m, node[1]))


def add_up(leaf: Callable[[int], Tensor], node: Node) -> Tensor:
    """Return the sum of a node's leaves in the tree's order; at most one partial sum per level is in memory."""
    if node[1] - node[0] == 1:
        return leaf(node[0])
    m = middle(node)
    return add_up(leaf, (node[0], m)).add_(add_up(leaf, (m, node[1])))


def join(parts: Mapping[Node, Tensor], node: Node) -> Tensor:
    """Return the sum of a node from those of nodes below it."""
    if node in parts:
        return parts[node]
    m = middle(node)
    return join(parts, (node[0], m)) + join(parts, (m, node[1]))


class Group:
    """The ranks of one chain, seen from one of them; this class is a single process that runs the whole chain."""

    rank, size = 0, 1

    def total(self, leaf: Callable[[int], Tensor], leaves: int) -> Tensor:
        """Return the sum of ``leaf(m)`` over all micro-batches, the same bits on every rank; one rank makes each
        leaf."""
        return add_up(leaf, (0, leaves))

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Give all ranks rank 0's values, in place."""

    def agree(self, digests: Mapping[str, bytes]) -> None:
        """Compare digests [32 bytes] with rank 0's.

        Raises:
            RankDiffers: on every rank, naming those that differ and in what.
        """

    def decide(self, go_on: bool) -> bool:
        """Return rank 0's decision, on every rank."""
        return go_on

    def wait(self, over: Callable[[float], bool]) -> None:
        """Wait, on every rank, until rank 0's ``over(seconds)`` holds, which itself waits so long at most."""
        while not self.decide(over(PULSE) if self.rank == 0 else False):
            pass

    def share(self, data: bytes) -> bytes:
        """Return rank 0's bytes, on every rank."""
        return data

    def together(self) -> None:
        """Wait until every rank calls this, however long: loading data takes its time."""


class Ranks(Group):
    """Ranks in processes of their own, joined by torch.distributed: gloo on CPUs, nccl on GPUs.

    Where the default process group is initialised already, as by Ray Train, it is used, and left as it is at the end.

    Args:
        rank: this process's.
        size: how many there are.
        address: HOST:PORT at which rank 0 waits for the others.
        device: of the chain.
        timeout: seconds that an exchange may take.
        listener: rank 0's socket, when it listens at the address already.
        own: the IP address at which the others reach this rank; by default the one that its host's name has.

    Raises:
        RankMissing: the others do not come.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        address: str,
        device: torch.device | None = None,
        *,
        timeout: float = TIMEOUT,
        listener: socket.socket | None = None,
        own: str | None = None,
    ) -> None:
        import torch.distributed as dist

        require(0 <= rank < size, "rank", rank, f"lie in [0, {size})")
        self.rank, self.size = rank, size
        self._device = device if device is not None else torch.device("cpu")
        self._dist, self._exchanges, self._meetings = dist, 0, 0
        limit = timedelta(seconds=timeout)
        host, _, port = address.rpartition(":")
        handed = listener.detach() if listener is not None else None
        if (name := interface(own)) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        try:
            settings: dict[str, Any] = {
                "is_master": rank == 0,
                "timeout": limit,
                "wait_for_workers": False,
                "master_listen_fd": handed,
            }
            self._board: Any = dist.TCPStore(host.strip("[]"), int(port), size, **settings)
            """Each rank's last exchange, and its reason for ending early."""
        except (RuntimeError, ValueError) as error:
            raise RankMissing(
                f"rank {rank} of {size} did not find rank 0 at {address}: {format_error(error)}"
            ) from None
        self._arrive()
        self._own = not dist.is_initialized()
        if not self._own:
            if self._device.index is not None:
                gpus.use(self._device)  # each thread has its own
            return
        backend, store = "nccl" if gpus.is_gpu(self._device) else "gloo", dist.PrefixStore("group", self._board)
        try:
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
        except (RuntimeError, ValueError) as error:
            raise self._missed(error) from None

    def total(self, leaf: Callable[[int], Tensor], leaves: int) -> Tensor:
        """Return the tree's sum: each rank adds up its subtrees, owners of stretches join them, and all gather
        these."""
        self._arrive()
        whole = (0, leaves)
        runs = [cover(run_of(r, self.size, leaves), whole) for r in range(self.size)]
        mine = [add_up(leaf, node) for node in runs[self.rank]]
        length = len(mine[0])
        stretch = -(-length // self.size)
        parts: dict[Node, Tensor] = {}
        for k in range(max(map(len, runs))):
            sent = mine[0].new_zeros(self.size * stretch)
            if k < len(mine):
                sent[:length] = mine[k]
            got = torch.empty_like(sent)
            self._exchange(partial(self._dist.all_to_all_single, got, sent))
            for r, nodes in enumerate(runs):
                if k < len(nodes):
                    parts[nodes[k]] = got[r * stretch : (r + 1) * stretch]
        own = join(parts, whole).contiguous()
        joined = own.new_empty(self.size * stretch)
        self._exchange(partial(self._dist.all_gather_into_tensor, joined, own))
        return joined[:length]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        self._arrive()
        for t in tensors:  # as bytes: gloo does not know every dtype
            sent = t.view(-1).view(torch.uint8) if t.is_contiguous() else t
            self._exchange(partial(self._dist.broadcast, sent, src=0))

    def agree(self, digests: Mapping[str, bytes]) -> None:
        self._arrive()
        mine = torch.tensor(list(b"".join(digests.values())), dtype=torch.uint8, device=self._device)
        all_of_them = [torch.empty_like(mine) for _ in range(self.size)]
        self._exchange(partial(self._dist.all_gather, all_of_them, mine))
        table = torch.stack(all_of_them).view(self.size, len(digests), 32).cpu()
        wrong = [
            f"rank {r} in its {name}"
            for r in range(1, self.size)
            for i, name in enumerate(digests)
            if not torch.equal(table[r, i], table[0, i])
        ]
        if wrong:
            raise RankDiffers(f"the ranks of a chain must be equal, but other than rank 0 is {'; '.join(wrong)}")

    def decide(self, go_on: bool) -> bool:
        flag = torch.tensor([int(go_on)], device=self._device)
        self.broadcast([flag])
        return bool(flag)

    def share(self, data: bytes) -> bytes:
        length = torch.tensor([len(data)], device=self._device)
        self.broadcast([length])
        if not int(length):
            return b""
        if self.rank == 0:
            content = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device)
        else:
            content = torch.empty(int(length), dtype=torch.uint8, device=self._device)
        self.broadcast([content])
        return data if self.rank == 0 else content.cpu().numpy().tobytes()

    def together(self) -> None:
        # A rank that dies meanwhile is noticed by the driver that started it.
        self._meetings += 1
        try:
            self._board.set(f"here/{self._meetings}/{self.rank}", "")
            while not self._board.check([f"here/{self._meetings}/{r}" for r in range(self.size)]):
                if (gone := self._gone()) is not None:
                    raise gone
                time.sleep(POLL_EVERY)
        except RuntimeError as error:
            raise self._missed(error) from None

    def abort(self, reason: str, *, lost: bool = False, rank: int | None = None) -> None:
        """Publish why this rank ends early, or another ``rank`` that cannot say so: its own error, or its machine's
        (``lost``)."""
        with contextlib.suppress(RuntimeError):
            self._board.set(f"{'lost' if lost else 'failed'}/{self.rank if rank is None else rank}", reason)

    def _arrive(self) -> None:
        """Publish that this rank comes to the next exchange."""
        self._exchanges += 1
        with contextlib.suppress(RuntimeError):  # the exchange itself fails then, with a better message
            self._board.set(f"at/{self.rank}", str(self._exchanges))

    def _exchange(self, call: Callable[[], object]) -> None:
        try:
            call()
        except RuntimeError as error:
            raise self._missed(error) from None

    def _missed(self, error: Exception) -> RaychainsError:
        """The error that names the ranks which did not come, as far as they published."""
        try:
            if (gone := self._gone()) is not None:
                return gone
            keys = [f"at/{r}" for r in range(self.size)]
            at = [int(self._board.get(k)) if self._board.check([k]) else 0 for k in keys]
        except RuntimeError:
            return RankMissing(f"rank {self.rank} of {self.size}: rank 0 is gone ({format_error(error)})")
        behind = [str(r) for r in range(self.size) if at[r] == min(at) and r != self.rank]
        return RankMissing(
            f"rank {self.rank} of {self.size} waited in vain for rank {' or '.join(behind) or 'another'}: "
            f"{format_error(error)}"
        )

    def _gone(self) -> RankFailed | RankMissing | None:
        """The error that another rank published before it left."""
        for r in range(self.size):
            for word, kind in (("failed", RankFailed), ("lost", RankMissing)):
                if r != self.rank and self._board.check([f"{word}/{r}"]):
                    return kind(f"rank {r}: {self._board.get(f'{word}/{r}').decode()}")
        return None

    def close(self) -> None:
        """Leave the group, whatever became of the others."""
        if self._own and self._dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                self._dist.destroy_process_group()


def interface(own: str | None) -> str | None:
    """Return the name of the network interface with an IPv4 address; None where that is not known, as outside Linux.

    gloo takes the address of the host's name otherwise, which many systems map to one that other machines do not reach.
    """
    if own is None or not sys.platform.startswith("linux"):
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # it has none
                found = fcntl.ioctl(asked, 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
                if socket.inet_ntoa(found[20:24]) == own:
                    return name
    return None
