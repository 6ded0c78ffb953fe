"""Waits for a device: none in an update, at most one per tick and per rollout, with the code that GPUs run."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from sb_dqn import devices
from sb_dqn.accelerate import cuda_graph, forced_mode
from sb_dqn.acting import network_runner
from sb_dqn.acting.collector import InlineCollector
from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.buffers import PrioritizedSampler
from sb_dqn.buffers.on_policy_buffer import OnPolicyBuffer
from sb_dqn.core.arguments import constructor_arguments
from sb_dqn.core.base_algorithm import BaseAlgorithm
from tests.choices import Choices
from tests.combinations import TORSOS
from tests.graphs import CpuGraph
from tests.marks import SLOW, a_few
from tests.tiny import Tiny, lanes, quick

WAITS = {
    "item", "tolist", "numpy", "__array__", "cpu", "__bool__", "__int__", "__float__", "__index__",
    "nonzero", "masked_select", "unique", "unique_consecutive", "equal", "allclose", "is_nonzero",
}  # fmt: skip
"""Functions of a tensor whose result Python reads, or whose shape depends on values. `to` is not among them: on one device
nobody can tell a copy from none."""
MODELS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "DQN": ("DQN", 1, {}),
    "DQN of 3 lanes": ("DQN", 3, {"n_steps": 3, "train_freq": 3}),
    "PERDQN": ("PERDQN", 4, {"n_steps": 3}),
    "a mix of priorities": ("PERDQN", 2, {"prioritized_replay": {"uniform_mix": 0.3}}),
    "Rainbow": ("Rainbow", 1, {"train_freq": 4}),
    "normalized DQN": ("DQN", 2, {"normalize_observations": True, "normalize_rewards": True}),
    "normalized PPO": ("PPO", 2, {"n_steps": 10, "batch_size": 10, "n_epochs": 2, "normalize_observations": True}),
    "R2D2": ("R2D2", 2, {}),
    "SAC": ("SAC", 2, {}),
    "PPO": ("PPO", 3, {"n_steps": 10, "batch_size": 15, "n_epochs": 2}),
    "recurrent PPO": ("PPO", 2, {"n_steps": 8, "batch_size": 16, "n_epochs": 2, "policy": "MlpLstmPolicy"}),
    "PQN": ("PQN", 3, {}),
    "DQN from frames": ("DQN", 2, {"policy": "CnnPolicy"}),
    "PPO from frames": ("PPO", 2, {"policy": "CnnPolicy", "n_steps": 10, "batch_size": 10, "n_epochs": 2}),
    "PQN from frames": ("PQN", 2, {"policy": "CnnPolicy"}),
}
STEPS = 240


class Watch(TorchFunctionMode):
    """Counts waits by the part of the loop that they belong to."""

    def __init__(self) -> None:
        super().__init__()
        self.part = ""
        self.counts: dict[str, Counter[str]] = {"": Counter(), "update": Counter(), "tick": Counter()}
        self.calls: Counter[str] = Counter()
        self.on_host: set[int] = set()
        """Tensors that are in host memory with any device: the step counts of torch's optimizers that are not fused."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        by_mask = name in ("__getitem__", "__setitem__") and any(
            torch.is_tensor(index) and index.dtype == torch.bool
            for index in (args[1] if isinstance(args[1], tuple) else (args[1],))
        )
        if (name in WAITS or by_mask) and id(args[0]) not in self.on_host:
            self.counts[self.part][name] += 1
        return func(*args, **(kwargs or {}))

    def within(self, part: str, function: Any) -> Any:
        """Returns `function`, with the waits in it counted for `part`."""

        def run(*args: Any, **kwargs: Any) -> Any:
            before, self.part = self.part, part
            self.calls[part] += 1
            try:
                return function(*args, **kwargs)
            finally:
                self.part = before

        return run


def watched(name: str, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Returns the counts of a short run, after a first one in which everything is made."""
    monkeypatch.setattr(devices, "HOST_DEVICES", ())
    algorithm, count, settings = MODELS[name]
    kwargs: dict[str, Any] = {"policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6}} if "recurrent" in name else {}
    env: Any = Tiny
    if "frames" in name:
        env, kwargs = partial(Choices, "frames", "discrete", False), {"policy_kwargs": TORSOS["frames"]}
    model: BaseAlgorithm = quick(lanes(count, env), algorithm=ALGORITHMS[algorithm], **settings, **kwargs)
    model.learn(STEPS)
    watch = Watch()
    if not model.learner.optimizer_step.plain_adam:
        watch.on_host = {id(state["step"]) for state in model.learner.optimizer.state.values()}
    model.gradient_step = watch.within("update", model.gradient_step)  # type: ignore[method-assign]
    assert isinstance(model.collector, InlineCollector)
    actor = model.collector.actor
    actor.select = watch.within("tick", actor.select)  # type: ignore[method-assign]
    experience = model._experience
    experience.extend = watch.within("store", experience.extend)
    if isinstance(experience, OnPolicyBuffer):
        experience.complete = watch.within("rollout", experience.complete)  # type: ignore[method-assign]
    watch.counts |= {"store": Counter(), "rollout": Counter()}
    with watch:
        model.learn(STEPS, log_interval=10**6, reset_num_timesteps=False)
    assert watch.calls["update"] >= 10
    return watch


@SLOW
@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", a_few(MODELS, "DQN", "R2D2", "SAC", "PPO"))
def test_updates_never_wait_and_ticks_wait_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watched(name, monkeypatch)
    assert not watch.counts["update"]
    assert not watch.counts["store"]
    assert watch.counts["tick"].keys() <= {"cpu", "numpy"}
    assert watch.counts["tick"]["cpu"] <= watch.calls["tick"]
    # the values of the open rows; a recurrent network also steps from the rows before them
    waits = 4 if "recurrent" in name else 1
    assert watch.counts["rollout"].keys() <= {"cpu", "numpy"}
    assert watch.counts["rollout"]["cpu"] <= waits * (watch.calls["rollout"] + 1)  # rows that `learn` cut


class Captured(CpuGraph):
    """Graph that calls nothing when it is launched, as on a device; the outputs are those of the capture."""

    launched = 0

    def launch(self) -> None:
        Captured.launched += 1


class Launches(TorchDispatchMode):
    """Counts what the ticks of a run launch: a graph is one launch, as is each operation outside of graphs but views and
    copies, which are counted apart. One that draws random numbers is a launch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.ticks = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and not func._schema.name.startswith("aten::empty"):
            self.names[func._schema.name] += 1
        return func(*args, **(kwargs or {}))

    def watching(self, select: Any) -> Any:
        def run(uniform: bool) -> Any:
            self.ticks += 1
            before = Captured.launched
            with self:
                action = select(uniform)
            self.names["graph"] += Captured.launched - before
            return action

        return run

    @property
    def copies(self) -> float:
        return self.names["aten::copy_"] / self.ticks

    @property
    def launches(self) -> float:
        return sum(count for name, count in self.names.items() if name != "aten::copy_") / self.ticks


def launches_of(monkeypatch: pytest.MonkeyPatch, algorithm: str, env: Any, **settings: Any) -> Launches:
    """Returns what a tick launches where networks are captured."""
    monkeypatch.setattr(cuda_graph, "CudaGraph", lambda device: Captured())
    monkeypatch.setattr(devices, "HOST_DEVICES", ())
    cls = ALGORITHMS[algorithm]
    rare: dict[str, Any] = {
        "learning_starts": 20, "train_freq": 500, "replay_ratio": 0.01, "n_steps": 500, "batch_size": 100,
        "episodes_per_update": 500, "exploration_initial_eps": 0.0, "exploration_final_eps": 0.0,
    }  # fmt: skip
    known = {name: value for name, value in rare.items() if name in constructor_arguments(cls)}
    known = {name: value for name, value in known.items() if name not in cls.replaced_arguments}
    if cls.keeps_replay:
        known.pop("n_steps", None)  # of returns, not of a rollout
    if algorithm == "BTR":
        known["exploration"] = {"schedule": 0.0}
    with forced_mode("captured"):
        model: BaseAlgorithm = quick(env, algorithm=cls, **{**known, **settings})
        model.learn(40)
    assert isinstance(model.collector, InlineCollector)
    counted, actor = Launches(), model.collector.actor
    actor.select = counted.watching(actor.select)  # type: ignore[method-assign]
    model.learn(60, reset_num_timesteps=False)
    assert counted.ticks >= 30
    assert counted.names["graph"] >= counted.ticks, counted.names
    return counted


@SLOW
@pytest.mark.parametrize("normalize", [False, True], ids=["", "normalized"])
@pytest.mark.parametrize("algorithm", a_few(ALGORITHMS, "DQN", "Rainbow", "BTR", "PPO"))
def test_a_tick_launches_one_graph_and_one_draw(
    algorithm: str, normalize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = launches_of(monkeypatch, algorithm, lanes(2, Tiny), normalize_observations=normalize)
    assert counted.launches <= 2, counted.names
    assert counted.copies <= 1, counted.names  # the observations there; that of the outputs is none on one device


@SLOW
@pytest.mark.parametrize("algorithm", ["DQN", "PPO"])
def test_a_tick_from_frames_launches_one_graph(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = lanes(2, partial(Choices, "frames", "discrete", False))
    counted = launches_of(monkeypatch, algorithm, env, policy="CnnPolicy", policy_kwargs=TORSOS["frames"])
    assert counted.launches <= 1, counted.names
    assert counted.copies <= 2, counted.names  # the newest frames, and the lanes and rows to read


def test_outputs_that_are_packed_outside_of_the_graph_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_runner, "unpack", lambda packed, tensors: devices.fetch(tensors))
    assert launches_of(monkeypatch, "PPO", lanes(2, Tiny)).launches >= 2


@SLOW
@pytest.mark.usefixtures("eagerly")
def test_an_update_that_waits_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    feedback = PrioritizedSampler.feedback

    def reads(sampler: PrioritizedSampler, index: torch.Tensor, priority: torch.Tensor) -> None:
        feedback(sampler, index, priority)
        priority[priority > 0.0].sum().item()

    monkeypatch.setattr(PrioritizedSampler, "feedback", reads)
    watch = watched("PERDQN", monkeypatch)
    assert watch.counts["update"]["item"] == watch.counts["update"]["__getitem__"] == watch.calls["update"]


def moved(model: Any, steps: int) -> set[str]:
    """Trains a model, and returns the tensors of its updates that are at other addresses afterwards."""

    def addresses() -> dict[str, int]:
        found = {f"column {name}": column for name, column in model.replay.ring.columns.items()}
        found |= {f"sampler {i}": tensor for i, tensor in enumerate(model.replay.sampler.mutable_tensors())}
        ring, learner = model.replay.ring, model.learner
        found |= {"lo": ring.lo, "hi": ring.hi, "edge": ring.edge, "base": ring.base, "total": ring.total}
        found |= {"flat": learner.flat, "target": learner.flat_target, "finite": learner.finite}
        found |= {f"parameter {i}": parameter for i, parameter in enumerate(model.policy.parameters())}
        state = learner.optimizer.state[learner.optimizer_step.masters[0]]
        found |= {f"moment {name}": moment for name, moment in state.items()}
        return {name: tensor.data_ptr() for name, tensor in found.items()}

    before = addresses()
    model.learn(steps)
    after = addresses()
    assert after.keys() == before.keys()
    return {name for name in before if after[name] != before[name]}


@SLOW
@pytest.mark.usefixtures("eagerly")
def test_nothing_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace of the update keeps addresses: those of all tensors that it reads or writes must stay."""
    monkeypatch.setattr(devices, "HOST_DEVICES", ())
    model = quick(lanes(2, Tiny), algorithm=ALGORITHMS["PERDQN"], n_steps=3, train_freq=1).learn(60)
    updates = model._n_updates
    assert moved(model, 520) == set()
    assert model._n_updates - updates >= 500


@pytest.mark.usefixtures("eagerly")
def test_a_tensor_that_moves_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model = quick(algorithm=ALGORITHMS["PERDQN"], train_freq=1)
    model.learn(40)
    step = model.learner.apply
    kept: list[torch.Tensor] = []

    def replaces(gradient: torch.Tensor) -> None:
        step(gradient)
        state = model.learner.optimizer.state[model.learner.optimizer_step.masters[0]]
        kept.append(state["exp_avg"])  # else its memory could be used again
        state["exp_avg"] = state["exp_avg"].clone()

    monkeypatch.setattr(model.learner, "apply", replaces)
    assert moved(model, 40) == {"moment exp_avg"}
