"""Execution by NumPy: same results as torch for each operation and for whole updates; fallback to torch."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import sb_dqn
from sb_dqn.accelerate import accelerate, backends, numpy_version, onednn_linear, torchscript
from sb_dqn.accelerate.numpy_backend.function import MAX_PRODUCT, NumpyFunction, numpy_function
from sb_dqn.accelerate.numpy_backend.operations import IN_PLACE, OPERATIONS
from sb_dqn.accelerate.numpy_backend.views import FACTORIES, FILLS, THREADED_BYTES, VIEW_FACTORIES, VIEWS
from sb_dqn.accelerate.simplification import simplify
from tests.marks import SLOW, a_few

N = 5


def floats(*shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.randn(shape, generator=generator)


def positive(*shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.rand(shape, generator=generator) + 0.1


def integers(high: int, *shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.randint(high, shape, generator=generator)


def truths(*shape: int) -> Callable[[torch.Generator], Tensor]:
    return lambda generator: torch.rand(shape, generator=generator) < 0.5


def into(x: Tensor, y: Tensor) -> Tensor:
    kept = x + 0
    kept.mul_(y).sub_(1.0)
    return kept


def copied(x: Tensor, y: Tensor) -> Tensor:
    kept = x * 2
    kept[1:3].copy_(y[1:3])
    return kept


def filled_where_masked(x: Tensor, mask: Tensor) -> Tensor:
    kept = x + 0
    kept[1:].masked_fill_(mask[1:], 0.5)
    return kept


def zeroed_in_place(x: Tensor) -> Tensor:
    kept = x + 0
    kept[:, 1:3].zero_()
    return kept


def put_in_place(x: Tensor, i: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    kept, rows, summed = x + 0, x + 0, x + 0
    cells = x.view(-1).argsort()  # each cell once: torch does not define which of two writes wins
    written = kept.view(-1).index_put_((cells,), values)  # through a view
    rows[:, cells[:1] % 4] = values[:1]
    return kept, written * 2, rows, summed.view(-1).index_put_((i,), values, accumulate=True)


def filled_and_reduced_in_place(x: Tensor, i: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    kept = x.view(-1) + 0
    kept.index_fill_(0, i, 0.0)
    zeros = kept * 1
    return zeros, kept.scatter_reduce_(0, i, values, "amax")


def reduced(*names: str) -> Callable[..., tuple[Tensor, ...]]:
    return lambda x, i, y: tuple(x.scatter_reduce(1, i, y, name) for name in names)


def filled_in_place(x: Tensor) -> Tensor:
    zeros = torch.zeros_like(x)
    zeros[0].copy_(x[0])
    return zeros


def gradient(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns a function for the gradient of the sum of squared results with respect to the first argument."""

    def derived(x: Tensor, *more: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(function(x, *more).square().sum(), [x])
        return found

    return derived


A, B = floats(N, 4), floats(N, 4)
CASES: dict[str, tuple[Callable[..., Any], tuple[Callable[[torch.Generator], Tensor], ...]]] = {
    "sums": (
        lambda x, y: (x + y, x - y, 2 - x, x * y, x / 3, x / (y.abs() + 1), -x, (y.abs() + 1).reciprocal()),
        (A, B),
    ),
    "truths and numbers": (lambda x, y: (x * 0.99, x.float() + y, x * y, x.long() * 2 + 0.5), (truths(N), floats(N))),
    "whole numbers": (
        lambda i, x: (i / 2, i * x, i + 1, i % 3, -i, i.remainder(4), i.clamp_min(2)),
        (integers(9, N), floats(N)),
    ),
    "negative remainders": (lambda i: ((i - 5) % 3, (i - 5.5) % 3), (integers(9, N),)),
    "functions": (lambda x: (x.exp(), x.log(), x.sqrt(), x.cos(), x**2, x**0.5, x.tanh(), x.abs()), (positive(N, 3),)),
    "bounds": (
        lambda x, y: (
            torch.minimum(x, y),
            torch.maximum(x, y),
            x.clamp(-0.5, 0.5),
            x.clamp(max=0.1),
            x.clamp_min(0),
            x.clamp_max(0),
        ),
        (A, B),
    ),
    "comparisons": (
        lambda x, y: (x > y, x >= y, x < y, x <= y, x == y, x != y, x > 0, x >= 0, x < 0, x <= 0),
        (integers(3, N), integers(3, N)),
    ),
    "logic": (
        lambda p, q: (
            p & q,
            p | q,
            ~p,
            p.logical_and(q),
            p.logical_or(q),
            p.logical_not(),
            p.any(-1),
            p.any(0, keepdim=True),
        ),
        (truths(N, 3), truths(N, 3)),
    ),
    "bits": (lambda i, j: (i & j, i | j, ~i), (integers(9, N), integers(9, N))),
    "choices": (
        lambda p, x, y: (
            torch.where(p, x, y),
            torch.where(p, x, 0.0),
            torch.where(p, 1, x),
            x.masked_fill(p, 0),
            x[0].masked_fill(p, 2),
        ),
        (truths(N, 4), A, B),
    ),
    "products": (
        lambda x, w, b: (F.linear(x, w, b), x @ w.T, w @ x[0], torch.dot(x[0], x[1])),
        (floats(N, 4), floats(3, 4), floats(3)),
    ),
    "a net": (lambda x, w, b: F.linear(F.relu(F.linear(x, w, b)), w, b), (floats(N, 4), floats(4, 4), floats(4))),
    "relu's gradient": (gradient(lambda x, y: F.relu(x) * y), (A, B)),
    "tanh's gradient": (gradient(lambda x, y: x.tanh() * y), (A, B)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (A, floats(4), floats(4))),
    "layer norm's gradient": (gradient(lambda x, w, b: F.layer_norm(x, (4,), w, b)), (A, floats(4), floats(4))),
    "softmax": (lambda x: (x.softmax(-1), x.log_softmax(-1), (x * 40).softmax(0)), (A,)),
    "the gradient of log softmax": (gradient(lambda x: x.log_softmax(-1)), (A,)),
    "huber": (lambda x, y: F.huber_loss(x * 3, y, reduction="none"), (A, B)),
    "huber with a bound": (lambda x, y: F.huber_loss(x * 3, y, reduction="none", delta=0.4), (A, B)),
    "huber's gradient": (gradient(lambda x, y: F.huber_loss(x * 3, y, reduction="none")), (A, B)),
    "reductions": (
        lambda x: (
            x.sum(),
            x.sum(0),
            x.sum(-1, keepdim=True),
            x.mean(),
            x.mean(1),
            x.mean((0, 1), keepdim=True),
            x.amax(-1),
            x.norm(),
        ),
        (A,),
    ),
    "counts": (lambda p, i: (p.sum(), p.sum(0), i.sum(), i.sum(1)), (truths(N, 3), integers(9, N, 3))),
    "largest": (lambda x: (x.argmax(-1), x.argmax(0), x.argmax(), x.amax(0, keepdim=True)), (A,)),
    "running": (lambda x: (x.cumsum(-1), x.cumsum(0), x.cumprod(0)), (A,)),
    "dtypes": (lambda x, p: (x.double(), (x * 9).long(), p.float(), p.to(torch.uint8), x.clone()), (A, truths(N))),
    "reads": (
        lambda x, i, j: (x[i], x[:, i], x[i, j], x.take(i), x.index_select(1, j), x.index_select(0, i)),
        (floats(N, 4), integers(4, 7), integers(4, 7)),
    ),
    "reads of many": (
        lambda x, i: (x.index_select(0, i), x.T.index_select(1, i)),
        (floats(N, 512), integers(N, THREADED_BYTES // 2048)),
    ),
    "exact near 0": (lambda x: (x.expm1(), x.log1p(), (x * 1e-6).expm1()), (positive(N, 3),)),
    "x log y": (lambda p, y: (torch.xlogy(p * y, y), torch.xlogy(y * 0, p * 1.0)), (truths(N), positive(N))),
    "hypotenuse": (lambda x, y: torch.hypot(x, y), (A, B)),
    "the larger number": (lambda x, y: (torch.fmax(x, y), torch.fmax(x.log(), y)), (A, B)),  # logarithms of negatives
    "softplus": (lambda x: (F.softplus(x * 20), F.softplus(x, beta=2.0)), (A,)),
    "softplus's gradient": (gradient(lambda x: F.softplus(x * 20)), (A,)),
    "extremes": (
        lambda x, i: (x.max(), i.max(), *x.max(-1), *x.min(0, keepdim=True), *i.max(1), *i.min(1), x.amin(0), x.amin()),
        (A, integers(3, N, 4)),
    ),
    "sorted": (lambda x, i: (*x.sort(), *x.sort(0), i.sort()[0]), (A, integers(3, N, 4))),
    "counted in steps": (lambda i: (i + torch.arange(0, 20, 4), torch.arange(9, -1, -2)), (integers(9, N),)),
    "shifted bits": (lambda i: (i >> 2, (i - 500) >> 5), (integers(1000, N),)),
    "padded": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 1, 2, 0), value=0.5), F.pad(x, (-1, 1))), (A,)),
    "products of batches": (torch.bmm, (floats(3, N, 4), floats(3, 4, 2))),
    "the gradient of a slice": (gradient(lambda x: x[:, 1:3]), (A,)),
    "the gradient of every second row": (gradient(lambda x: x[::2]), (A,)),
    "reduced and scattered": (reduced("amax", "amin", "sum", "prod"), (A, integers(4, N, 3), floats(N, 3))),
    "filled where masked": (filled_where_masked, (A, truths(N, 4))),
    "zeroed in place": (zeroed_in_place, (A,)),
    "filled and reduced in place": (filled_and_reduced_in_place, (A, integers(20, 20), floats(20))),
    "put in place": (put_in_place, (A, integers(20, 20), floats(20))),
    "turned round": (lambda x: (x.flip(1), x.flip(0, 1)), (A,)),
    "searched": (
        lambda x, i: (torch.searchsorted(x.cumsum(0), i), torch.searchsorted(x.cumsum(0), i, right=True)),
        (integers(3, N), integers(9, N, 3)),
    ),
    "searched row by row": (
        lambda x, i: (torch.searchsorted(x.cumsum(1), i), torch.searchsorted(x.cumsum(1), i, right=True)),
        (integers(3, N, 4), integers(9, N, 3)),
    ),
    "bounds that are tensors": (lambda x, y: (x.clamp(y.min(), y.sum()), x.clamp(max=y.min())), (A, positive(N))),
    "powers of tensors": (lambda x, y: x**y, (positive(N), floats(N))),
    "whole quotients": (lambda i: ((i - 5) // 3, i == 3), (integers(9, N),)),
    "counted": (
        lambda x: (x + torch.arange(4), x[0] * torch.arange(1, 5), x * torch.arange(4, dtype=torch.float32)),
        (A,),
    ),
    "windows": (lambda x: (x.unfold(1, 3, 2), x.unfold(0, 2, 1)), (floats(N, 7),)),
    "gather": (lambda x, i: x.gather(-1, i), (A, integers(4, N, 1))),
    "gather many": (lambda x, i: (x.gather(1, i), x.gather(0, i)), (A, integers(4, N, 3))),
    "gather deep": (lambda x, i: x.gather(1, i), (floats(N, 3, 2), integers(3, N, 1, 2))),
    "scatter": (gradient(lambda x, i: x.gather(-1, i)), (A, integers(4, N, 1))),
    "scatter on the same": (gradient(lambda x, i: x.gather(-1, i)), (A, integers(4, N, 6))),
    "joined": (
        lambda x, y: (torch.cat([x, y]), torch.cat([x, y], -1), torch.stack([x, y]), torch.stack([x, y], 1)),
        (A, B),
    ),
    "stacked numbers": (lambda x: torch.stack([x.mean(), x.sum()]), (A,)),
    "shapes": (
        lambda x: (
            x.view(2, -1),
            x.T,
            x.unsqueeze(0),
            x.unsqueeze(-1),
            x.unsqueeze(1),
            x.unsqueeze(-1).squeeze(-1),
            x[1],
            x[:, 2],
            x[:, 1:3],
            x[::2],
        ),
        (floats(4, 4),),
    ),
    "more shapes": (
        lambda x: (
            x.permute(2, 0, 1),
            x.squeeze(1),
            x.squeeze(0),
            x.expand(6, -1, -1, -1).sum(0),
            *x.split(2),
            *x.split([1, 4], 0),
            *x.unbind(1),
            *x.unbind(0),
        ),
        (floats(5, 1, 3),),
    ),
    "in place": (into, (A, B)),
    "copied in place": (copied, (A, B)),
    "a fill that is written": (filled_in_place, (A,)),
    "fills": (
        lambda x: (
            x + torch.zeros_like(x),
            x * torch.ones_like(x),
            x + x.new_zeros(4),
            x + torch.zeros(4),
            x * torch.ones(4),
        ),
        (A,),
    ),
    "a scalar": (lambda p, x: torch.where(p, x, torch.scalar_tensor(2.0)), (truths(N, 4), A)),
    "a product of three axes": (lambda x, w: x @ w, (floats(2, 3, 4), floats(4, 5))),
    "the gradient of a mean": (gradient(lambda x: x.mean(-1)), (A,)),
}
TRACED: set[Any] = set()


def examples(arguments: tuple[Callable[[torch.Generator], Tensor], ...], seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(make(generator) for make in arguments)


def as_tuple(answer: Any) -> tuple[Tensor, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def by_numpy(function: Callable[..., Any], example: tuple[Tensor, ...]) -> Callable[..., Any] | None:
    graph = backends._trace(function, example)
    TRACED.update(node.target for node in graph.graph.nodes if node.op == "call_function")
    simplify(graph)
    return numpy_function(graph, example)


@pytest.mark.parametrize("name", CASES)
def test_every_operation(name: str) -> None:
    function, arguments = CASES[name]
    run = by_numpy(function, examples(arguments, 0))
    assert run is not None
    for seed in range(1, 6):
        given = examples(arguments, seed)
        for found, expected in zip(as_tuple(run(*given)), as_tuple(function(*given)), strict=True):
            torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6, equal_nan=True)


@SLOW
def test_every_operation_of_the_tables_is_tested() -> None:
    for name in CASES:
        by_numpy(CASES[name][0], examples(CASES[name][1], 0))
    missing = {*OPERATIONS, *IN_PLACE, *VIEWS, *VIEW_FACTORIES, *FILLS, *FACTORIES} - TRACED
    assert {str(one) for one in missing} <= {"aten.logical_and_.default"}  # in every update, below


ON_POLICY = ("PQN", "A2C", "PPO")
OFF_POLICY = (
    "DQN",
    "DoubleDQN",
    "DuelingDQN",
    "NoisyDQN",
    "NStepDQN",
    "MunchausenDQN",
    "PERDQN",
    "CategoricalDQN",
    "Rainbow",
)


@pytest.mark.skipif(not torchscript.is_available(), reason="needs TorchScript")
def test_many_exponentials_are_left_to_torchscript(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(backends, "numpy_function", lambda graph, example: asked.append(example[0].shape))
    for rows in (10, 100):
        backends.accelerate(lambda x: x.softmax(-1) + x.exp() + x, (torch.zeros(rows, 50),), "traced")
    assert asked == [(10, 50)]  # 1,000 results; then 10,000


@SLOW
@pytest.mark.parametrize(
    ("name", "lanes"),
    a_few(
        [*((name, 1) for name in (*OFF_POLICY, *ON_POLICY)), ("DQN", 4), ("PERDQN", 4)],
        ("DQN", 1),
        ("PERDQN", 4),
        ("CategoricalDQN", 1),
        ("PPO", 1),
    ),
)
def test_whole_updates(name: str, lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acting and learning with NumPy give the same parameters as torch."""
    found: list[bool] = []

    def counting(*arguments: Any) -> Any:
        run = numpy_function(*arguments)
        found.append(run is not None)
        return run

    def learnt() -> Tensor:
        cls = getattr(sb_dqn, name)
        settings: dict[str, Any] = {"n_steps": 64} if name == "PPO" else {}
        if name not in ON_POLICY:
            settings = {"learning_starts": 50, "learning_rate": 1e-4}
        env = sb_dqn.make_vec_env("CartPole-v1", lanes) if lanes > 1 else "CartPole-v1"
        flat: Tensor = cls("MlpPolicy", env, seed=0, device="cpu", **settings).learn(120).learner.flat
        return flat

    monkeypatch.setattr(backends, "numpy_function", counting)
    monkeypatch.setattr(
        backends, "slow_elements", lambda _: 0
    )  # C51 and Rainbow too, though TorchScript is faster for them
    by_numpy = learnt()
    assert len(found) >= 2
    assert all(found)
    monkeypatch.setattr(backends, "numpy_function", lambda *_: None)
    torch.testing.assert_close(by_numpy, learnt(), rtol=1e-3, atol=1e-4)


def test_tensors_of_the_graph_are_read_and_written() -> None:
    weight, flag = torch.ones(3, 2), torch.tensor(True)

    def function(x: Tensor) -> Tensor:
        flag.logical_and_(x.sum() < 10)
        return x @ weight.T

    run = by_numpy(function, (torch.ones(1, 2),))
    assert run is not None
    weight.fill_(2)
    assert run(torch.ones(1, 2)).tolist() == [[4, 4, 4]]
    assert flag
    run(torch.full((1, 2), 9.0))
    assert not flag


def test_a_priority_tree_is_written_in_place() -> None:
    """The arrays of a graph share the memory of its tensors, also where a view of them is written."""
    leaves, highest = torch.zeros(4, 2), torch.tensor(1.0)

    def function(cells: Tensor, values: Tensor) -> Tensor:
        leaves.view(-1).index_put_((cells,), values)
        highest.copy_(torch.maximum(highest, values.max()))
        return leaves.sum(1)

    example = torch.tensor([1, 6]), torch.tensor([0.0, 0.0])
    run = by_numpy(function, example)
    assert run is not None
    assert run(torch.tensor([1, 6]), torch.tensor([3.0, 5.0])).tolist() == [3, 0, 0, 5]
    assert leaves.tolist() == [[0, 3], [0, 0], [0, 0], [5, 0]]
    assert highest == 5


def test_a_result_does_not_share_memory_that_is_written() -> None:
    held, first = torch.zeros(3), torch.tensor([0])

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        before = held + 0
        return before, held.index_put_((first,), x) * 2

    run = by_numpy(function, (torch.ones(1),))
    assert run is not None
    held.zero_()
    before, after = run(torch.ones(1))
    run(torch.full((1,), 7.0))
    assert before.tolist() == [0, 0, 0]
    assert after.tolist() == [2, 0, 0]


def test_an_expanded_view_follows_writes() -> None:
    def function(x: Tensor) -> Tensor:
        kept = x + 0
        wide = kept.unsqueeze(0).expand(3, 2)
        kept.mul_(x)
        return wide * 2

    run = by_numpy(function, (torch.ones(2),))
    assert run is not None
    assert run(torch.tensor([2.0, 3.0])).tolist() == [[8, 18]] * 3


def test_dividing_by_zero_is_silent_as_in_torch() -> None:
    run = by_numpy(lambda x: (1 / x, x.log()), (torch.ones(2),))
    assert run is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(torch.zeros(2))[0].tolist() == [np.inf, np.inf]


def test_infinity_times_zero_is_not_a_number() -> None:
    run = by_numpy(lambda x, w: F.relu(x) @ w, (torch.ones(4, 8), torch.ones(8, 3)))
    assert run is not None
    assert run(-torch.ones(4, 8), torch.full((8, 3), np.inf)).isnan().all()


@pytest.mark.parametrize(
    ("function", "example"),
    [
        (lambda x: x.roll(1, 0), (torch.ones(3),)),  # unknown
        (lambda x: torch.add(x, x, alpha=3), (torch.ones(3),)),  # an argument that numpy does not take
        (lambda x: F.huber_loss(x, x * 2), (torch.ones(3),)),  # a form that is not provided for
        (lambda x: x.sum().mul_(2), (torch.ones(3),)),  # numpy's numbers cannot be written into
        (lambda x: x @ x + 1, (torch.ones(200, 200),)),  # so large that torch is faster for all of it
        (lambda x: (x + 1).index_fill_(1, torch.zeros(1).long(), 2.0), (torch.ones(3, 2),)),  # the same
        (lambda x: (x + 1).scatter_reduce_(0, torch.zeros(3).long(), x, "sum"), (torch.ones(3),)),  # the same
        (lambda x: x.sort(descending=True)[0], (torch.ones(3),)),  # another form that is not provided for
        (lambda x: x.scatter_reduce(0, torch.zeros(3).long(), x, "mean"), (torch.ones(3),)),  # the same
        (lambda x: x.scatter_reduce(0, torch.zeros(3).long(), x, "sum", include_self=False), (torch.ones(3),)),
        (lambda x: x.bfloat16(), (torch.ones(3),)),  # numpy has no such numbers
    ],
)
def test_unsupported_operations_fall_back_to_torch(
    function: Callable[..., Tensor], example: tuple[Tensor, ...]
) -> None:
    trace = backends._trace(function, example)
    before = trace.code
    assert numpy_function(trace, example) is None
    assert trace.code == before
    assert torch.equal(accelerate(function, example, "traced")(*example), function(*example))


@pytest.mark.parametrize("slow", [True, False])
@pytest.mark.parametrize(
    ("function", "example"),
    [
        (operator.matmul, (floats(65, 65), floats(65, 65))),
        (operator.matmul, (floats(1, 128), floats(128, 128))),  # the same of a row
        (lambda x, w, b: F.linear(x, w, b).relu(), (floats(64, 256), floats(128, 256), floats(128))),
        (lambda x, w: x @ w.T, (floats(64, 256), floats(128, 256))),
        (torch.bmm, (floats(3, 65, 65), floats(3, 65, 65))),
    ],
)
def test_large_products_are_computed_by_torch(
    function: Callable[..., Any],
    example: tuple[Callable[[torch.Generator], Tensor], ...],
    slow: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(onednn_linear, "mkl_is_slow", lambda: slow and torch.backends.mkldnn.is_available())
    monkeypatch.setattr(np, "matmul", None)
    run = by_numpy(function, examples(example, 0))
    assert run is not None
    for seed in range(1, 4):
        given = examples(example, seed)
        torch.testing.assert_close(run(*given), function(*given), rtol=1e-4, atol=1e-4)


def test_products_up_to_the_limit_are_computed_by_numpy() -> None:
    side = 64
    assert side**3 == MAX_PRODUCT
    assert by_numpy(operator.matmul, (torch.ones(side, side), torch.ones(side, side))) is not None


def test_tensors_may_move_in_memory() -> None:
    held = torch.arange(4.0)

    def function(x: Tensor) -> Tensor:
        return held[1:] * 2 + x

    run = numpy_version(function, (torch.ones(3),))
    held.share_memory_()  # as sending it to another process does; what it was before is freed
    held += 10
    assert run is not function
    assert run(torch.ones(3)).tolist() == [23.0, 25.0, 27.0]
    assert isinstance(run, NumpyFunction)
    assert run.on_arrays(np.ones(3, np.float32)).tolist() == [23.0, 25.0, 27.0]
