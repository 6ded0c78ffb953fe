"""Traced and compiled functions: same results as eager ones while their state is written in place."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor as inductor
from gymnasium import spaces
from torch import Tensor

from sb_dqn import DQN
from sb_dqn.accelerate import Mode, accelerate, are_small, choose_mode, keep_freed_memory, limit_threads
from sb_dqn.buffers import Layout, ReplayBuffer, Ring, TransitionView, UniformSampler, UpdateSchedule
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.learning.learner import Learner
from sb_dqn.objectives.bootstrap import Bootstrap
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.policies import MlpPolicy, QPolicy
from sb_dqn.spaces import flatten_space
from sb_dqn.types import Batch, Rows, Slot
from tests.marks import SLOW, a_few
from tests.nets import NETS, NUM_ACTIONS, VECTOR, OwnExtractor, make_batch, make_obs, make_policy

CPU = torch.device("cpu")


def test_choosing_a_mode() -> None:
    assert choose_mode([make_policy("mlp")], CPU, False) == "traced"
    assert choose_mode([make_policy("dict")], CPU, False) == "traced"
    assert choose_mode([make_policy("cnn")], CPU, False) == "traced"
    assert choose_mode([make_policy("mlp")], torch.device("cuda"), False) == "captured"
    assert choose_mode([make_policy("cnn")], CPU, True) == "compiled"


def test_small_networks_use_one_thread() -> None:
    assert are_small([make_policy("mlp"), make_policy("dict")], CPU)
    assert not are_small([make_policy("mlp"), make_policy("cnn")], CPU)
    assert not are_small([make_policy("mlp")], torch.device("cuda"))
    wide = [torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 2))]
    assert are_small(wide, CPU)
    assert are_small(wide, CPU, 127)
    assert not are_small(wide, CPU, 128)


@SLOW
@pytest.mark.parametrize(("batch_size", "threads"), a_few([(64, 1), (128, 2)], 64))
def test_wide_layers_and_large_batches_keep_their_threads(batch_size: int, threads: int) -> None:
    seen: list[int] = []

    def look(*_: Any) -> bool:
        seen.append(torch.get_num_threads())
        return True

    wide: dict[str, Any] = {"batch_size": batch_size, "learning_starts": 0, "policy_kwargs": {"net_arch": [256, 256]}}
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        DQN("MlpPolicy", "CartPole-v1", **wide).learn(200, callback=look)
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {threads}


def test_user_modules_are_never_traced() -> None:
    own = MlpPolicy(VECTOR, spaces.Discrete(2), features_extractor_class=OwnExtractor)
    assert choose_mode([own], CPU, False) == "eager"

    class OwnActivation(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if float(x.sum()) > 0 else -x

    inside = MlpPolicy(VECTOR, spaces.Discrete(2), activation_fn=OwnActivation)
    assert choose_mode([inside], CPU, False) == "eager"

    class OwnPolicy(MlpPolicy):
        def greedy(self, obs: dict[str, Tensor], mask: Any = None, noise: Any = None) -> Tensor:
            return super().greedy(obs) * int(obs["obs"].sum() > 0)

    assert choose_mode([OwnPolicy(VECTOR, spaces.Discrete(2))], CPU, False) == "eager"


@pytest.mark.parametrize(("mode", "called"), [("traced", "tracing"), ("compiled", "torch.compile")])
def test_a_branch_on_a_value_is_not_traced(mode: Mode, called: str, capsys: pytest.CaptureFixture[str]) -> None:
    def branches(x: Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x

    run = accelerate(branches, (torch.ones(2),), mode)  # the recorder itself refuses a read-back
    assert run(-torch.ones(2)).tolist() == [1.0, 1.0]
    assert f"{called} failed, running without it" in capsys.readouterr().err


def test_an_error_without_a_message_is_reported_by_type(capsys: pytest.CaptureFixture[str]) -> None:
    def silent(x: Tensor) -> Tensor:
        raise AssertionError

    assert accelerate(silent, (torch.ones(2),), "traced") is silent
    assert "running without it: AssertionError" in capsys.readouterr().err


def learner_of(policy: QPolicy, **kwargs: Any) -> Learner:
    return Learner(policy.q_net, policy.q_net_target, **kwargs)


def flat_batch(batch: Batch) -> tuple[list[str], tuple[Tensor, ...]]:
    keys = list(batch.obs)
    return keys, (*batch.obs.values(), *batch.next_obs.values(), *batch[1:4], *batch[5:7])


@SLOW
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("max_grad_norm", [0.1, None])
@pytest.mark.parametrize("name", a_few(list(NETS), "mlp", "cnn"))
def test_the_gradient_of_dqn(name: str, max_grad_norm: float | None, double_q: bool) -> None:
    learner = learner_of(make_policy(name), objective=QLearning(Bootstrap(double_q)), max_grad_norm=max_grad_norm)
    keys, example = flat_batch(make_batch(name, 0))

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        n = len(keys)
        obs, next_obs = (dict(zip(keys, part, strict=True)) for part in (tensors[:n], tensors[n : 2 * n]))
        action, return_, discount, weight, place = tensors[2 * n :]
        gradient, priority, update = learner.gradient(Batch(obs, action, return_, discount, next_obs, weight, place))
        return gradient, priority, update.values

    traced = accelerate(function, example, "traced")
    learner.set_learning_rate(0.01)
    for seed in range(1, 5):
        _, arguments = flat_batch(make_batch(name, seed))
        found, expected = traced(*arguments), function(*arguments)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
            assert not one.requires_grad
        learner.apply(found[0])  # the parameters move in place, and the trace follows
        learner.store.sync_target(0.3)


@pytest.mark.parametrize("name", ["mlp", "dict", "one hot"])
def test_greedy_actions_follow_the_parameters(name: str) -> None:
    policy, rng = make_policy(name), torch.Generator().manual_seed(0)
    obs = make_obs(policy.observation_space, 32, rng)
    keys = list(obs)

    def function(*tensors: Tensor) -> Tensor:
        return policy.greedy(dict(zip(keys, tensors, strict=True)))

    traced = accelerate(function, tuple(obs.values()), "traced")
    seen = set()
    for seed in range(4):
        policy.load_state_dict(make_policy(name, seed).state_dict())
        obs = make_obs(policy.observation_space, 32, rng)
        found = traced(*obs.values())
        assert torch.equal(found, function(*obs.values()))
        seen |= set(found.tolist())
    assert len(seen) > 1


def random_rows(rng: np.random.Generator, lanes: int) -> Rows:
    flags = [rng.random(lanes) < 0.1 for _ in range(2)]
    obs = {"obs": rng.normal(size=(lanes, 4)).astype(np.float32)}
    reward = rng.normal(size=lanes).astype(np.float32)
    slot = Slot(obs, reward, reward, flags[0], flags[0] | flags[1], np.ones(lanes, bool))
    return Rows(rng.integers(NUM_ACTIONS, size=lanes), (slot,), np.ones(lanes, bool), lanes)


@SLOW
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("lanes", a_few([1, 3], 3))
def test_sampling_and_learning_in_one_trace(lanes: int, n_steps: int) -> None:
    policy, rng = make_policy("mlp"), np.random.default_rng(0)
    ring = Ring(Layout(60, lanes, flatten_space(VECTOR), num_actions=NUM_ACTIONS, n_steps=n_steps))
    replay = ReplayBuffer(
        ring, UniformSampler(ring, 16), TransitionView(ring, Horizon(ring.n_steps, 0.9)), UpdateSchedule()
    )
    learner = learner_of(policy, objective=QLearning(Bootstrap()))

    def function(noise: Tensor) -> tuple[Tensor, ...]:
        batch = replay.sample_from(noise)
        gradient, priority, update = learner.gradient(batch)
        return batch.place, batch.return_, priority, update.values, gradient

    for _ in range(6):
        replay.extend(random_rows(rng, lanes))
    replay.refresh()
    draws = torch.Generator().manual_seed(0)
    noise = torch.zeros(replay.sampler.noise_shape, dtype=torch.float64)
    traced = accelerate(function, (noise,), "traced")
    learner.set_learning_rate(0.01)
    newest = 0
    for _ in range(80):  # rows are written, the ring wraps, the bounds move
        replay.extend(random_rows(rng, lanes))
        replay.refresh()
        noise.uniform_(generator=draws)
        expected = function(noise)
        found = traced(noise)
        assert torch.equal(found[0], expected[0])
        for one, other in zip(found[1:], expected[1:], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=5e-7)  # numpy sums in another order
        newest = max(newest, int(found[0][1].max()))
        learner.apply(found[-1])
    assert newest > 60 // lanes  # beyond the first turn of the ring


def test_a_traced_function_writes_its_state_in_place() -> None:
    flag = torch.ones((), dtype=torch.bool)

    def function(x: Tensor) -> Tensor:
        flag.logical_and_(torch.isfinite(x.sum()))
        return x * 2

    traced = accelerate(function, (torch.ones(3),), "traced")
    traced(torch.ones(3))
    assert bool(flag)
    traced(torch.tensor([1.0, torch.nan, 1.0]))
    assert not bool(flag)


def test_results_are_new_tensors() -> None:
    traced = accelerate(lambda x: x * 2, (torch.ones(2),), "traced")
    first = traced(torch.tensor([1.0, 2.0]))
    traced(torch.tensor([5.0, 5.0]))
    gc.collect()
    assert first.tolist() == [2.0, 4.0]


def test_eager_mode_returns_the_function() -> None:
    def function(x: Tensor) -> Tensor:
        return x

    assert accelerate(function, (torch.ones(2),), "eager") is function


OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {}),
    "Adam, one by one": (torch.optim.Adam, {"fused": False, "foreach": False, "weight_decay": 0.1}),
    "AdamW, amsgrad": (torch.optim.AdamW, {"amsgrad": True}),
    "SGD": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "RMSprop": (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    "Adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1}),
    "Rprop": (torch.optim.Rprop, {}),
}


@SLOW
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", a_few(OPTIMIZERS, "Adam", "RMSprop"))
def test_optimizers_use_a_traced_gradient(name: str, precision: str) -> None:
    optimizer_class, kwargs = OPTIMIZERS[name]
    learners = [
        learner_of(
            make_policy("mlp"), objective=QLearning(Bootstrap()), optimizer_class=optimizer_class, optimizer_kwargs=kwargs,
            precision=precision,
        )
        for _ in range(2)
    ]  # fmt: skip
    eager, traced = learners
    batch = make_batch("mlp", 0)
    start = eager.flat.clone()
    run = accelerate(lambda return_: traced.gradient(batch._replace(return_=return_))[0], (batch.return_,), "traced")
    for learner in learners:
        learner.set_learning_rate(0.01)
    for number in range(5):
        return_ = make_batch("mlp", number).return_
        eager.apply(eager.gradient(batch._replace(return_=return_))[0])
        traced.apply(run(return_))
    moved, error = (eager.flat - start).norm(), (traced.flat - eager.flat).norm()
    assert moved > 0.01
    assert error < (1e-3 if precision == "fp32" else 0.1) * moved  # bfloat16 rounds elsewhere in a trace


def fails(graph: Any, example: Any) -> Any:
    def run(*arguments: Tensor) -> Any:
        raise RuntimeError("no C++ compiler found\nand a long trace")

    return run


def test_without_a_compiler_the_function_runs_eagerly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inductor, "compile", fails)
    run = accelerate(lambda x: x * 3, (torch.ones(2),), "compiled")
    assert run(torch.tensor([1.0, 2.0])).tolist() == [3.0, 6.0]
    said = capsys.readouterr().err
    assert "torch.compile failed, running without it: no C++ compiler found" in said
    assert "long trace" not in said


def test_the_compiled_function_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fake(graph: Any, example: Any) -> Any:
        def run(*arguments: Tensor) -> Any:
            assert not torch.is_grad_enabled()
            calls.append(len(arguments))
            return graph(*arguments)

        return run

    monkeypatch.setattr(inductor, "compile", fake)
    scale = torch.tensor(3.0)
    run = accelerate(lambda x: x * scale, (torch.ones(2),), "compiled")
    assert run(torch.tensor([1.0, 2.0])).tolist() == [3.0, 6.0]
    scale.fill_(5.0)  # state is handed over with each call, not frozen
    assert run(torch.tensor([1.0, 2.0])).tolist() == [5.0, 10.0]
    assert calls == [2, 2, 2]  # the first at construction, so that a broken compiler shows there


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with limit_threads(False):
            assert torch.get_num_threads() == 2
        with pytest.raises(KeyError), limit_threads(True):
            assert torch.get_num_threads() == 1
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("largest", [1 << 25, 1 << 31])
def test_an_allocator_that_refuses_large_thresholds_gets_its_largest(
    largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted = {}

    class Library:
        @staticmethod
        def mallopt(parameter: int, value: int) -> bool:
            if parameter == -3 and value > largest:  # the threshold for mmap
                return False
            accepted[parameter] = value
            return True

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("ctypes.CDLL", lambda name: Library())
    keep_freed_memory.__wrapped__()
    assert accepted == {-3: min(largest, 1 << 30), -1: (1 << 31) - 1}
