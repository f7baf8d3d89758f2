"""What goes wrong in a history, drawn from its seed before it begins."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.actors import Node

if TYPE_CHECKING:
    from tests.simulation.world import World


def plan(world: World) -> None:
    """Have some things go wrong, each at a time of its own."""
    from tests.simulation.world import CALM

    rng = world.machine.rng
    world.disk.lag = rng.choice((0.0, 0.0, 0.0, 2.0))
    world.disk.was_wrong = world.disk.lag > 0
    for _ in range(rng.choice((0, 1, 2, 4, 8))):
        what = rng.choice(FAULTS)
        world.machine.after(rng.uniform(0.0, CALM * rng.choice((0.2, 0.5, 0.9))), partial(what, world))
    world.machine.after(CALM, partial(calm, world))


def calm(world: World) -> None:
    """End everything that is wrong: what is left must come to its end."""
    world.disk.calm()
    for node in world.nodes:
        node.cut_until = min(node.cut_until, world.machine.now)
    if not any(node.known and not node.draining for node in world.nodes):
        add_node(world)


def add_node(world: World) -> None:
    """A node comes."""
    world.nodes.append(Node(f"node{len(world.nodes)}", world.machine.rng.choice((1, 2))))
    world.machine.tell(f"{world.nodes[-1].name} comes")
    world.place_soon()


def lose_node(world: World) -> None:
    """A node goes, and another may come later."""
    known = [node for node in world.nodes if node.known]
    if known:
        world.lose(world.machine.rng.choice(known))
        world.machine.after(world.uniform(5.0, 60.0), partial(add_node, world))


def drain_node(world: World) -> None:
    """A node's end is announced; it comes after a while, and sometimes at once. Another may come."""
    known = [node for node in world.nodes if node.known and not node.draining]
    if known:
        node, seconds = world.machine.rng.choice(known), world.machine.rng.choice((0.5, 10.0, 30.0))
        world.machine.tell(f"{node.name} will be gone in {seconds:g} s")
        node.draining = True
        world.machine.after(seconds, lambda: world.lose(node) if node.alive else None)
        world.machine.after(world.uniform(5.0, 60.0), partial(add_node, world))


def kill_actor(world: World) -> None:
    """A worker's or an evaluator's process is killed."""
    alive = [actor for node in world.nodes for actor in node.actors if not actor.dead]
    if alive:
        actor = world.machine.rng.choice(alive)
        world.machine.tell(f"a {type(actor).__name__} on {actor.node.name if actor.node else ''} is killed")
        actor.end(notice=world.uniform(0.1, 1.0))


def stop_actor(world: World) -> None:
    """A process is stopped, for a while or until it is killed."""
    alive = [actor for node in world.nodes for actor in node.actors if not actor.dead]
    if alive:
        actor = world.machine.rng.choice(alive)
        seconds = world.machine.rng.choice((3.0, 20.0, 1e9))
        world.machine.tell(f"a {type(actor).__name__} stops for {seconds:g} s")
        actor.frozen_until = world.machine.now + seconds


def cut_node(world: World) -> None:
    """A node cannot be reached for a while; Ray may give it up meanwhile."""
    known = [node for node in world.nodes if node.known]
    if not known:
        return
    node, seconds = world.machine.rng.choice(known), world.machine.rng.choice((2.0, 15.0, 60.0))
    world.machine.tell(f"{node.name} is cut off for {seconds:g} s")
    node.cut_until = world.machine.now + seconds
    if seconds > 10.0:
        world.machine.after(10.0, lambda: world.bury(node) if node.known and world.machine.chance(0.7) else None)
        world.machine.after(world.uniform(30.0, 60.0), partial(add_node, world))


def kill_driver(world: World) -> None:
    """A driver's process is killed."""
    alive = [d for d in world.drivers if not (d.process.over or d.process.dead)]
    if alive:
        driver = world.machine.rng.choice(alive)
        world.machine.tell(f"{driver.process.name} is killed")
        driver.process.kill()


def stop_driver(world: World) -> None:
    """A driver's process is stopped for a while, maybe until others count it as dead."""
    alive = [d for d in world.drivers if not (d.process.over or d.process.dead)]
    if alive:
        driver, seconds = world.machine.rng.choice(alive), world.machine.rng.choice((5.0, 90.0))
        world.machine.tell(f"{driver.process.name} stops for {seconds:g} s")
        driver.process.frozen_until = world.machine.now + seconds
        driver.was_stopped = True


def interrupt(world: World) -> None:
    """Somebody presses Ctrl-C."""
    alive = [d for d in world.drivers if not (d.process.over or d.process.dead) and d.interrupt is not None]
    if alive:
        driver = world.machine.rng.choice(alive)
        world.machine.tell(f"{driver.process.name} is asked to stop")
        assert driver.interrupt is not None
        driver.interrupt.asked = True


def storage_away(world: World) -> None:
    """The storage answers nobody, or one of its users, for a while."""
    rng = world.machine.rng
    who = rng.choice(("", "", *world.runs, *(node.name for node in world.nodes)))
    seconds = rng.choice((1.0, 10.0, 80.0))
    world.machine.tell(f"storage is away for {seconds:g} s{' of ' + who if who else ''}")
    world.disk.was_wrong = True
    world.disk.away[who] = world.machine.now + seconds


def storage_refuses(world: World) -> None:
    """The storage takes no files for a while: it is full, or read-only."""
    number = world.machine.rng.choice((errno.ENOSPC, errno.EROFS))
    world.machine.tell(f"storage refuses: {errno.errorcode[number]}")
    world.disk.was_wrong = True
    world.disk.fault = number

    def again() -> None:
        world.disk.fault = None

    world.machine.after(world.uniform(1.0, 20.0), again)


def storage_slow(world: World) -> None:
    """Every call of a driver takes long for a while."""
    world.disk.was_wrong = True
    world.disk.slow = world.uniform(0.05, 0.5)

    def again() -> None:
        world.disk.slow = 0.0

    world.machine.after(world.uniform(5.0, 30.0), again)


def clocks_jump(world: World) -> None:
    """The storage's clock and a driver's jump."""
    world.disk.was_wrong = True
    world.disk.jumped += world.uniform(-100.0, 100.0)
    for driver in world.drivers:
        driver.process.skew += world.uniform(-1e5, 1e5)


FAULTS: tuple[Callable[[World], None], ...] = (
    *(kill_actor, kill_actor, kill_actor, stop_actor, lose_node, cut_node, kill_driver, stop_driver, interrupt),
    *(storage_away, storage_refuses, storage_slow, clocks_jump, add_node, drain_node),
)
