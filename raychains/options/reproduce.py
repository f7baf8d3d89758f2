"""Options of `raychains reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from raychains.options.common import Common
from raychains.options.kinds import Names, Number, Text


@dataclass(frozen=True, kw_only=True)
class Reproduce(Common):
    """Run published tables and figures and lay our numbers beside the papers', with what differs and why.

    Chains that several of them need run once; whatever was run before is found in the store. Tables, figures, what became
    of each claim, and an index page are written to STORE/reproduce/SCALE. docs/reproduce.md

    Example: raychains reproduce table4 fig2 fig5 --scale cpu
    """

    names: Positional[Names] = ()
    """Which: all, or names such as table2 fig3c emcmc-fig2 theorem1; --list says what each is."""
    scale: Annotated[str, arg(metavar="{smoke,cpu,gpu,paper}")] = "cpu"
    """smoke: every code path in minutes on made-up data; cpu: honest reduced settings for two cores; gpu: the papers'
    networks on one GPU; paper: the published settings. Results of different scales are never mixed."""
    list: bool = False
    """Say what there is: data, gradient evaluations and hours at every scale. Nothing is run."""
    dry_run: bool = False
    """Say what would be run, and what sharing chains saves. Nothing is run."""
    max_hours: Number = None
    """Stop after so many hours: what is not finished goes on with the same command."""
    to: Text = None
    """Folder or URI for tables, figures and pages; default STORE/reproduce/SCALE."""
