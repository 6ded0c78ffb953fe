"""Simplified graphs compute and write the same as traced ones, with fewer operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sb_dqn.accelerate import backends, torchscript
from sb_dqn.accelerate.fx_backend import fx_function, public_function
from sb_dqn.accelerate.simplification import simplify
from tests.accelerate.test_numpy_backend import CASES, as_tuple, examples
from tests.marks import a_few


def simplified(function: Callable[..., Any], example: tuple[Tensor, ...]) -> Any:
    graph = backends._trace(function, example)
    simplify(graph)
    return graph


def operations(graph: Any) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def by_torchscript(graph: Any, example: tuple[Tensor, ...]) -> Any:
    return torchscript.torchscript_function(graph, example)


BY_TORCHSCRIPT = pytest.param(
    by_torchscript, marks=pytest.mark.skipif(not torchscript.is_available(), reason="needs TorchScript")
)


@pytest.mark.parametrize("run_graph", [fx_function, BY_TORCHSCRIPT])
@pytest.mark.parametrize("simple", a_few([True, False], True))
@pytest.mark.parametrize("name", CASES)
def test_every_operation(name: str, simple: bool, run_graph: Any) -> None:
    function, arguments = CASES[name]
    example = examples(arguments, 0)
    graph = backends._trace(function, example)
    if simple:
        simplify(graph)
    run = run_graph(graph, example)
    for seed in range(1, 4):
        given = examples(arguments, seed)
        for found, expected in zip(as_tuple(run(*given)), as_tuple(function(*given)), strict=True):
            torch.testing.assert_close(found, expected, equal_nan=True)
            assert found.stride() == expected.stride() or not found.numel()


def test_operations_are_called_by_their_public_functions() -> None:
    held = torch.zeros(2)

    def function(x: Tensor) -> Tensor:
        held.mul_(2)
        return torch.relu(x + 1).view(2, 1).sum(1) + held[None, torch.tensor([0, 1])]

    graph = backends._trace(function, (torch.ones(2),))
    found = {public_function(node) for node in graph.graph.nodes if node.op == "call_function"}
    assert {torch.add, torch.relu, torch.sum, Tensor.view, Tensor.mul_} <= found
    assert torch.ops.aten.index.Tensor in found  # torch has no function of this name


def test_views_and_constants_are_computed_before() -> None:
    weight = torch.randn(3, 2)
    graph = simplified(lambda x: (x @ weight.t().detach()).view(3).unsqueeze(0).squeeze(0) * 2, (torch.ones(1, 2),))
    assert operations(graph) == ["aten.mm.default", "aten.squeeze.dim", "aten.mul.Tensor"]


def test_repeated_operations_are_computed_once() -> None:
    graph = simplified(lambda x: (x + 1) * (x + 1) + (x + 1.5), (torch.ones(2),))
    assert operations(graph).count("aten.add.Tensor") == 3  # 1 and 1.5 differ, and the outer one


def test_reads_before_and_after_a_write_differ() -> None:
    held = torch.zeros(2)

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        before = held * 2
        held.copy_(held + x)
        return before + 0, held * 2 + 0

    run = fx_function(simplified(function, (torch.zeros(2),)), (torch.zeros(2),))
    before, after = run(torch.ones(2))
    assert before.tolist() == [0, 0]
    assert after.tolist() == [2, 2]
    assert held.tolist() == [1, 1]


def test_a_write_to_other_memory_separates_nothing() -> None:
    held, other = torch.ones(2), torch.ones(2)  # two names of memory outside of the graph may be the same memory

    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        before, product = held * 3, (x + 1) * 2
        torch.zeros_like(product).copy_(before)
        between = product + (x + 1) * 2
        other.copy_(between)
        return before + between, held * 3 + product

    graph = simplified(function, (torch.zeros(2),))
    assert [operations(graph).count(f"aten.{name}.Tensor") for name in ("add", "mul")] == [4, 3]
    one, two = fx_function(graph, (torch.zeros(2),))(torch.ones(2))
    assert (one.tolist(), two.tolist()) == ([11, 11], [7, 7])


def test_a_write_through_a_view_is_seen() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x + 1
        before = made * 2
        made.transpose(0, 1)[0].copy_(x[0])
        return before + 0, made * 2 + 0

    run = fx_function(simplified(function, (torch.zeros(2, 2),)), (torch.zeros(2, 2),))
    before, after = run(torch.full((2, 2), 3.0))
    assert before.tolist() == [[8, 8], [8, 8]]
    assert after.tolist() == [[6, 8], [6, 8]]


def test_parts_of_a_stack_and_products_with_one_are_there_already() -> None:
    graph = simplified(lambda x, y: (torch.stack([x, y]).unbind()[1] * 1 + x, y.exp()), (torch.ones(2), torch.ones(2)))
    assert operations(graph) == ["aten.add.Tensor", "aten.exp.default"]


def test_parts_of_concatenated_tensors_are_there_already() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        whole = torch.cat([x, y], -1)
        left, right = whole.split([2, 3], -1)
        return left.exp(), right.cos(), whole[:, 2:].sin()

    example = torch.ones(4, 2), torch.ones(4, 3)
    graph = simplified(function, example)
    assert operations(graph) == ["aten.exp.default", "aten.cos.default", "aten.sin.default"]
    given = torch.randn(4, 2), torch.randn(4, 3)
    for found, expected in zip(fx_function(graph, example)(*given), function(*given), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("bounds", [(0, 3), (1, 3), (2, 4), (2, 3)])
@pytest.mark.parametrize("axis", [0, 1])
def test_views_across_concatenated_tensors_are_kept(bounds: tuple[int, int], axis: int) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y], axis).narrow(axis, bounds[0], bounds[1] - bounds[0]).exp()

    example = torch.ones(2, 2), torch.ones(3, 3)[: 2 + (axis == 0), : 2 + (axis == 1)]
    graph = simplified(function, example)
    assert operations(graph) == ["aten.cat.default", "aten.slice.Tensor", "aten.exp.default"]


def test_a_part_that_is_promoted_by_the_others_is_another() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x, y])[:2] + 2**-12

    example = torch.ones(2, dtype=torch.bfloat16), torch.ones(2)
    run = fx_function(simplified(function, example), example)
    assert run(*example).tolist() == [1 + 2**-12] * 2  # 1 in bfloat16


def test_zeros_like_a_permuted_tensor_can_be_viewed_as_it() -> None:
    def function(x: Tensor) -> Tensor:
        return x + torch.zeros_like(x.permute(2, 0, 1)).permute(1, 2, 0).view(-1)[0]

    example = (torch.ones(2, 3, 4),)
    assert torch.equal(fx_function(simplified(function, example), example)(*example), torch.ones(2, 3, 4))


@pytest.mark.parametrize("writes_whole", [True, False])
def test_a_part_that_is_written_later_is_another_than_the_concatenated_one(writes_whole: bool) -> None:
    def function(x: Tensor) -> Tensor:
        part = x + 1
        whole = torch.cat([part, x])
        before = whole[:2]
        (whole if writes_whole else part).mul_(3)
        return before * 2

    run = fx_function(simplified(function, (torch.zeros(2),)), (torch.zeros(2),))
    assert run(torch.ones(2)).tolist() == ([12, 12] if writes_whole else [4, 4])


def test_equal_tensors_that_are_written_stay_apart() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        one, other = torch.zeros_like(x), torch.zeros_like(x)
        one.copy_(x)
        return one + 0, other + 0

    run = fx_function(simplified(function, (torch.ones(2),)), (torch.ones(2),))
    assert [found.tolist() for found in run(torch.ones(2))] == [[1, 1], [0, 0]]
    assert [found.tolist() for found in run(torch.ones(2))] == [[1, 1], [0, 0]]


@pytest.mark.parametrize("run_graph", [fx_function, BY_TORCHSCRIPT])
def test_held_constants_are_not_folded_with_state(run_graph: Any) -> None:
    weight = torch.ones(2, 3)

    def function(x: Tensor) -> Tensor:
        return x + (weight.t() * 2).sum(0)  # only state and numbers: it must be read again at each call

    run = run_graph(simplified(function, (torch.zeros(2),)), (torch.zeros(2),))
    weight.fill_(5)
    for _ in range(4):  # TorchScript optimizes after the first calls
        assert run(torch.zeros(2)).tolist() == [30, 30]
    weight.fill_(1)
    assert run(torch.zeros(2)).tolist() == [6, 6]


def test_torchscript_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SB_DQN_TORCHSCRIPT", "0")
    assert not torchscript.is_available()
    monkeypatch.setattr(torch.jit, "trace", None)
    x = torch.ones(3)
    assert backends.accelerate(lambda x: x.roll(1, 0) + 1, (x,), "traced")(x).tolist() == [2, 2, 2]
