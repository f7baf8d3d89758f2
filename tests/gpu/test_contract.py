"""What can be shown of the path on a GPU without one: no waiting for it, nothing of the CPU in it, few operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains import tasks
from raychains.chain.chain import Chain
from raychains.chain.draw_capture import indices_to
from raychains.chain.process_group import Ranks
from raychains.core import gpus
from raychains.core.sample import Progress, Sample
from raychains.data import standins
from raychains.evaluation.evaluation import SHARD
from raychains.models.cnn import LeNet
from raychains.models.mlp import three_layer
from raychains.samplers import KINDS, SGHMC, Sampler
from tests.chain.chain_cases import CASES, SAMPLERS, spec
from tests.data.prepared.made import folder_of_classes, prepared
from tests.gpu.contract import NEEDS_A_DRIVER, Broken, Contract, fake_cuda, on_meta
from tests.spread import witnessed

ROOT = Path(__file__).resolve().parents[2]
BATCH = 50
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP": (three_layer, (BATCH, 784)),
    "LeNet": (LeNet, (BATCH, 1, 28, 28)),
}
STREAMED = ("imagenet-", "imagefolder-")
"""Tasks of prepared sets, whose batches come from decoders."""
WARM = 2
"""Steps before the one that is counted, in which states are made."""


COMPARES_VALUES = ("laplace-digits",)
"""Chains that compare tensors' values once, before their first step, which ``meta`` has none of."""


QUICK = [f"{kind}-digits" for kind in ("sghmc", "sgnht", "emcmc", "swag", "sam", "entropy-sgld")]
QUICK += ["sghmc-mixture", "mclmc-mixture"]
"""Chains that `make test` looks at: of the others it looks at an update and a whole step, above."""

READS_ON_THE_CPU = {"mclmc"}
"""Samplers that compare a density's energies, which NumPy computes, or whose tuner looks at its rows at its end."""


def sampler_of(kind: str, params: Any) -> Sampler:
    made: Any = KINDS[kind]
    optimises = {"temperature": 0.0} if kind == "laplace" else {}  # above that its steps move nothing
    sampler: Sampler = made(params, lr=0.01, num_data=30, weight_decay=0.1, seed=1, **optimises, **SAMPLERS[kind])
    return sampler


def on_fake_cuda(make: Callable[[list[Tensor]], Sampler], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three updates on fake ``cuda`` tensors under the contract."""
    with fake_cuda(monkeypatch):
        params = [torch.zeros(shape, device="cuda", requires_grad=True) for shape in ((3, 4), (3,))]

        def loss() -> Tensor:  # backward does not run on fake tensors
            for p in params:
                p.grad = torch.zeros_like(p)
            return torch.zeros((), device="cuda")

        sampler = make(params)
        with Contract():
            for _ in range(WARM + 1):
                sampler.step(loss)


def counted(network: str, make: Callable[[list[nn.Parameter]], Any]) -> tuple[int, float]:
    """Operators of one whole step on ``meta``, and numbers that it allocates, per parameter."""
    built, shape = NETWORKS[network]
    model = built().to("meta")
    inputs, labels = torch.empty(shape, device="meta"), torch.empty(shape[0], dtype=torch.long, device="meta")
    params = list(model.parameters())
    optimizer = make(params)

    def loss() -> Tensor:
        model.zero_grad()
        value = F.cross_entropy(model(inputs), labels)
        value.backward()
        return value.detach()

    with Contract() as contract:
        for _ in range(WARM):
            optimizer.step(loss)
        operators, allocated = contract.launches, contract.allocated
        optimizer.step(loss)
    numbers = sum(p.numel() for p in params)
    return contract.launches - operators, (contract.allocated - allocated) / numbers


def of_torch(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True)


BOUNDS: dict[str, dict[str, tuple[int, float]]] = {
    "torch.optim.SGD": {"MLP": (24, 2.42), "LeNet": (37, 26.92)},
    "adamw": {"MLP": (28, 2.42), "LeNet": (41, 26.92)},
    "atmc": {"MLP": (58, 16.42), "LeNet": (79, 40.92)},
    "bsam": {"MLP": (102, 15.83), "LeNet": (152, 64.83)},
    "emcmc": {"MLP": (34, 6.42), "LeNet": (47, 30.92)},
    "entropy-sgd": {"MLP": (41, 5.42), "LeNet": (62, 29.92)},
    "entropy-sgld": {"MLP": (41, 5.42), "LeNet": (62, 29.92)},
    "laplace": {"MLP": (24, 1.42), "LeNet": (37, 25.92)},
    "mclmc": {"MLP": (312, 61.83), "LeNet": (366, 110.84)},
    "psgld": {"MLP": (32, 5.42), "LeNet": (45, 29.92)},
    "sam": {"MLP": (94, 9.83), "LeNet": (144, 58.83)},
    "sgd": {"MLP": (23, 2.42), "LeNet": (36, 26.92)},
    "sgdm": {"MLP": (24, 1.42), "LeNet": (37, 25.92)},
    "sghmc": {"MLP": (26, 2.42), "LeNet": (39, 26.92)},
    "sgld": {"MLP": (25, 3.42), "LeNet": (38, 27.92)},
    "sgnht": {"MLP": (49, 4.42), "LeNet": (66, 28.92)},
    "swag": {"MLP": (24, 1.42), "LeNet": (37, 25.92)},
}
"""By optimizer and network: operators of a step, and numbers that it allocates, per parameter, rounded up."""


def rows() -> str:
    """Return the rows of `BOUNDS` as they are measured now (python -m tests.gpu.test_contract prints them)."""
    makers: dict[str, Any] = {"torch.optim.SGD": of_torch}
    makers |= {kind: lambda params, kind=kind: sampler_of(kind, params) for kind in sorted(KINDS)}
    found = []
    for name, make in makers.items():
        own = {network: counted(network, make) for network in NETWORKS}
        cells = ", ".join(f'"{n}": ({operators}, {allocated + 0.005:.2f})' for n, (operators, allocated) in own.items())
        found.append(f'    "{name}": {{{cells}}},')
    return "\n".join(found)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_update_neither_waits_for_the_device_nor_touches_the_cpu(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_fake_cuda(lambda params: sampler_of(kind, params), monkeypatch)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("network", NETWORKS)
def test_a_whole_step_takes_no_more_operators_and_memory_than_recorded(
    kind: str, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_meta(monkeypatch)
    operators, allocated = counted(network, lambda params: sampler_of(kind, params))
    most_operators, most_allocated = BOUNDS[kind][network]
    assert operators <= most_operators
    assert allocated <= most_allocated


@pytest.mark.parametrize("sampler", ["sghmc", "sam"])
def test_micro_batches_step_without_waiting_for_the_device(sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_meta(monkeypatch)
    chain = Chain(spec("digits", sampler, micro_batch=5), device="meta")
    chain._one_step()
    with Contract() as contract:
        chain._one_step()
    assert chain._micro is not None and chain._micro.count == 4 and contract.launches > 0


class Alike(Ranks):
    """One of several ranks, whose others send what it sends: exchanges stay on the device, as nccl's do."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self._dist, self.exchanges = rank, size, self, 0  # type: ignore[assignment]

    def _arrive(self) -> None:
        """There is no one to tell."""

    def all_to_all_single(self, got: Tensor, sent: Tensor) -> None:
        self.exchanges += 1
        got.copy_(sent)

    def all_gather_into_tensor(self, got: Tensor, sent: Tensor) -> None:
        self.exchanges += 1
        got.view(self.size, -1).copy_(sent)

    def broadcast(self, tensors: Any, src: int = 0) -> None:
        """All have rank 0's values."""


@pytest.mark.parametrize("rank", range(3))
def test_a_rank_waits_once_in_a_step_for_whether_rank_0_asks_for_a_pause(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its micro-batches, its part of the tree's sum, the exchanges and the update of a chain of three ranks."""
    waits = on_meta(monkeypatch)
    group = Alike(rank, 3)
    chain = Chain(spec("digits", "sghmc", micro_batch=4), device="meta", group=group)
    chain._one_step()
    before, exchanges = waits.copy(), group.exchanges
    with Contract(ahead=True) as contract:
        chain._one_step()
    assert chain._micro is not None and chain._micro.count == 5 and contract.launches > 0
    assert waits - before == {"value": 1} and group.exchanges - exchanges == 3  # two rounds of subtrees, and the sum


def test_a_snapshot_is_the_copy_to_the_cpu_that_the_contract_refuses_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {name: getattr(gpus, name) for name in ("is_gpu", "on_host")}
    on_meta(monkeypatch)
    chain = Chain(CASES["sghmc-digits"], device="meta")
    for name, function in usual.items():
        monkeypatch.setattr(gpus, name, function)
    with Contract(), pytest.raises(Broken, match="copy_: a copy from the device"):
        next(iter(chain.draws.take()))


@pytest.mark.parametrize("case", witnessed([c for c in CASES if c not in COMPARES_VALUES], *QUICK))
def test_a_chain_waits_once_for_a_record_and_for_a_sample_and_never_between(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps of a chain with its records, samples and a checkpoint: of each at most so many waits.

    That is batch, loss, prior, backward, update and the sum of losses.
    """
    waits = on_meta(monkeypatch)
    chain = Chain(CASES[case], device="meta")
    records = samples = 0
    with Contract() as contract:
        while events := chain.advance():
            records += sum(isinstance(e, Progress) for e in events)
            samples += sum(isinstance(e, Sample) for e in events)
            # the first loss; a record's numbers; a sample's copy, its loss, and whether states are finite
            assert waits["value"] + waits["wait"] <= 1 + records + 3 * samples
            assert waits["array"] == 0 or CASES[case].sampler.kind in READS_ON_THE_CPU
        before = waits.total()
        chain.state_dict()
        assert waits.total() - before <= 3 + CASES[case].block_draws  # parameters, states and loss are finite
    assert chain.done and samples > 0 and records > 0
    assert contract.launches > 0 and all(p.device.type == "meta" for p in chain.sampler.parameters())


@pytest.mark.parametrize("name", ["digits", "cifar10-resnet20"])
def test_a_shard_is_predicted_with_one_wait(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = on_meta(monkeypatch)
    monkeypatch.setenv("RAYCHAINS_DATA", str(root))
    task = tasks.make(name)
    device = torch.device("meta")
    evaluation: Any = task.splits()["test"]
    sample = task.build_model(seed=0, lanes=1).state_dict()
    evaluation.to(device)
    with torch.no_grad(), Contract() as contract:
        predicted = evaluation.predict(sample, 0)
    assert predicted.shape == (min(len(evaluation.inputs), SHARD), evaluation.classes)
    assert contract.launches > 0 and dict(waits) == {"array": 1}


def test_images_have_a_gpus_layout_on_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_meta(monkeypatch)
    monkeypatch.setenv("RAYCHAINS_DATA", str(root))
    task: Any = tasks.make("cifar10-resnet20")
    task.to(torch.device("meta"))
    batch = indices_to(task.epoch(seed=0, batch_size=8), torch.device("meta"))[0]
    inputs = task.network_inputs(task.source.batch(batch)[0], torch.float32)
    assert inputs.is_contiguous(memory_format=torch.channels_last) and not inputs.is_contiguous()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = standins.make(tmp_path_factory.mktemp("data") / "root", train=40, test=20, corruptions=1)
    prepared(folder_of_classes(made / "raw"), made / "imagenet")
    return made


DEEP = (
    "cifar10-resnetpp56",
    "imagefolder-resnet50",
    "imagefolder-resnetpp",
    "imagenet-resnet50",
    "imagenet-resnetpp50",
)


@pytest.mark.parametrize("name", witnessed(tasks.NAMES, *(name for name in tasks.NAMES if name not in DEEP)))
def test_a_task_gives_its_gradient_without_waiting_for_the_device(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch, augmentation, normalisation, forward, loss and backward."""
    on_meta(monkeypatch)
    monkeypatch.setenv("RAYCHAINS_DATA", str(root))
    device = torch.device("meta")
    task = tasks.make(name, **({"size": 32} if name.startswith(STREAMED) else {}))
    task.to(device)
    model = task.build_model(seed=0, lanes=1).to(device)
    batches = indices_to(task.epoch(seed=0, batch_size=8), device)
    task.backward(model, batches[0], torch.Generator(device))  # constants are taken to the device once
    with Contract(ahead=True) as contract:
        task.backward(model, batches[min(1, len(batches) - 1)], torch.Generator(device))
    assert contract.launches > 0
    assert all(p.grad is not None and p.grad.device == device for p in model.parameters())


class Drawn(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Examples that are made when they are asked for."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((4,), float(index)), index % 3


def test_batches_of_a_users_dataset_are_sent_without_waiting_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    on_meta(monkeypatch)
    device = torch.device("meta")
    task = tasks.Task.from_module(lambda: nn.Linear(4, 3), Drawn(), Drawn(), "cross_entropy", name="drawn")
    task.to(device)
    model = task.build_model(seed=0, lanes=1).to(device)
    batches = indices_to(task.epoch(seed=0, batch_size=8), device)
    with Contract(ahead=True) as contract:
        for batch in batches:
            task.backward(model, batch, torch.Generator(device))
    assert contract.launches > 0


@pytest.mark.parametrize("network", NETWORKS)
def test_sghmc_takes_at_most_1_3_times_the_operators_of_sgd(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_meta(monkeypatch)
    floor, _ = counted(network, of_torch)
    assert floor == BOUNDS["torch.optim.SGD"][network][0]
    assert counted(network, lambda params: sampler_of("sghmc", params))[0] <= 1.3 * floor


MUTATIONS: dict[str, tuple[Callable[[list[Tensor]], Any], str]] = {
    "item": (lambda params: params[0].sum().item(), "_local_scalar_dense"),
    "cpu": (lambda params: params[0].cpu(), "_to_copy: a copy from the device"),
    "copy_": (lambda params: torch.empty(3, 4).copy_(params[0]), "copy_: a copy from the device"),
    "binary": (lambda params: params[0] * torch.ones(()), "mul: 1 of 2 tensors are on the CPU"),
    "foreach": (
        lambda params: torch._foreach_add_(params, [torch.zeros(p.shape) for p in params]),
        "_foreach_add_: 2 of 4 tensors",
    ),
}


def mutated(harm: Callable[[list[Tensor]], Any]) -> type[SGHMC]:
    class Harmed(SGHMC):
        def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
            super()._update(group, params, grads)
            harm(params)

    return Harmed


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_step_that_breaks_the_contract_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    harm, message = MUTATIONS[name]
    own: Any = mutated(harm)
    with pytest.raises(Broken, match=re.escape(message)):
        on_fake_cuda(lambda params: own(params, lr=0.01, num_data=30, momentum=0.9, seed=1), monkeypatch)


def test_an_allocation_in_each_step_exceeds_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    on_meta(monkeypatch)
    own: Any = mutated(lambda params: [torch.empty_like(p) for p in params])
    _, allocated = counted("MLP", lambda params: own(params, lr=0.01, num_data=30, weight_decay=0.1, momentum=0.9))
    assert allocated > BOUNDS["sghmc"]["MLP"][1]


@pytest.mark.parametrize("path", NEEDS_A_DRIVER)
def test_lines_that_need_a_driver_are_where_the_list_says(path: str) -> None:
    assert NEEDS_A_DRIVER[path] in (ROOT / path).read_text()


def test_no_other_file_asks_what_a_device_is_or_calls_a_driver() -> None:
    asks = re.compile(r"torch\.cuda\b|torch\.backends\.cu|\.is_cuda\b|pin_memory|\.type [!=]= \"cuda\"")
    files = {str(f.relative_to(ROOT)) for f in (ROOT / "raychains").rglob("*.py") if asks.search(f.read_text())}
    assert files <= NEEDS_A_DRIVER.keys()


if __name__ == "__main__":
    on_meta(pytest.MonkeyPatch())
    print(rows())
