"""One rank in a process of its own, which runs several chains in turn: python -m tests.chain.ranks_process RANK
PLANS.json."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from raychains.chain.chain import Chain
from raychains.chain.process_group import Ranks
from raychains.core.sample import Sample, tensors_sha256
from tests.chain.ranks_cases import chain_spec, task
from tests.processes import until

GROUPS: list[Ranks] = []
"""Kept: with rank 0's goes what the others read when they miss someone."""


def main(rank: int, size: int, port: int, out: Path, plan: dict[str, Any]) -> None:
    """Run a chain, pause where rank 0 is told to, and write what happened to OUT/RANK.json, the state to
    OUT/state.pt."""
    told: dict[str, Any] = {"samples": [], "error": "", "pauses": []}
    group = None
    try:
        group = Ranks(rank, size, f"127.0.0.1:{port}", timeout=plan.get("timeout", 100))
        GROUPS.append(group)
        chain = Chain(chain_spec(**plan["spec"]), task(**plan["task"]), group=group)
        if "resume" in plan:
            chain.load_state_dict(torch.load(plan["resume"], weights_only=True))
        while not chain.done:
            if plan.get("spoil") == rank and chain.step >= plan["spoil_at"]:
                chain.sampler.reseed(99)
                plan["spoil"] = None
            if plan.get("hang") == rank and chain.step >= plan["at"]:
                time.sleep(plan["timeout"] + 2)
            if plan.get("leave") == rank and chain.step >= plan["at"]:
                group.abort("its own trouble", lost=plan["lost"])
                raise ValueError("its own trouble")
            events = chain.advance(lambda: rank == 0 and chain.step in plan.get("pauses", ()))
            told["samples"] += [tensors_sha256(e.tensors) for e in events if isinstance(e, Sample)]
            if chain.paused:
                chain.check_ranks()
                told["pauses"].append(chain.step)
                if rank == 0:
                    torch.save(chain.state_dict(), out / "state.pt")
                if not group.decide(chain.step < plan.get("end_at", 10**9)):
                    break
    except Exception as error:
        told["error"] = f"{type(error).__name__}: {error}"
    finally:
        if group is not None:
            group.close()
    (out / f"{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    mine = int(sys.argv[1])
    for scenario in json.loads(Path(sys.argv[2]).read_text()):
        there = set(range(scenario["size"])) - {*scenario["plan"].get("absent", ())}
        if mine in there:
            out = Path(scenario["out"])
            (
                out / f"{mine}-here"
            ).touch()  # a timeout is for what happens then, not for ranks that are still at the one before
            until(lambda out=out, there=there: len(list(out.glob("*-here"))) == len(there), "the other ranks")
            main(mine, scenario["size"], scenario["port"], Path(scenario["out"]), scenario["plan"])
