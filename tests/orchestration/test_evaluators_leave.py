"""Evaluators on draining nodes do their last jobs, and others take over."""

from __future__ import annotations

from raychains.coordination.capacity import Node
from raychains.orchestration.chains.messages import EvaluationConfig
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.orchestration.run.evaluation_queue import EvaluationQueue
from raychains.orchestration.run.evaluator_pool import IN_FLIGHT, Evaluators
from raychains.tasks.mixture import Mixture25
from tests.orchestration.recorded import Recorded, Started
from tests.orchestration.test_pending_views import filled
from tests.orchestration.worlds import comparison


def test_an_evaluator_that_leaves_does_its_jobs_and_takes_no_other() -> None:
    cluster = Recorded(Node(1, 0, "stays"))
    plan = comparison(Mixture25(), chains=1)
    pool = filled(list(plan.chains()), draws=5)
    evaluators = Evaluators(cluster, "store", EvaluationConfig(task={}, split="target", bins=15), 1, ResourceConfig())
    queue = EvaluationQueue(plan, pool, evaluators, shards=1)

    def predictions(actor: Started) -> int:
        return len(actor.called("predict"))

    queue.submit()
    [first] = cluster.actors
    assert predictions(first) == IN_FLIGHT
    cluster.left.append(first)
    queue.watch(1.0)
    for _ in range(2):  # another one is started, and takes what waits
        queue.submit()
    _, second = cluster.actors
    assert (predictions(first), predictions(second)) == (IN_FLIGHT, IN_FLIGHT)
    cluster.answer = "goes"  # the node that has the blocks
    for ref in list(evaluators.running[0].jobs):
        queue.take(ref)
    queue.submit()
    assert predictions(first) == IN_FLIGHT and not cluster.killed and queue.evaluated == IN_FLIGHT
    queue.watch(1.0)
    assert cluster.killed == [first] and [e.actor for e in evaluators.running] == [second]
    assert len(second.called("fetch")) == IN_FLIGHT, "blocks are copied before the node is gone"
