"""Large nets sample from a trace that NumPy runs: the same batches, the same learning, to the last bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from sb_dqn.accelerate import backends, numpy_version
from sb_dqn.algorithms import DQN, R2D2
from sb_dqn.buffers import ReplayBuffer, replay_buffer
from sb_dqn.types import Batch
from tests.continuing import Kept
from tests.marks import SLOW, a_few
from tests.tiny import lanes, quick

SMALL: dict[str, Any] = {
    "features_extractor_kwargs": {"features_dim": 12, "channels": (4,), "kernels": (4,), "strides": (2,)}
}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one step": (DQN, {}),
    "three steps": (DQN, {"n_steps": 3}),
    "priorities": (DQN, {"n_steps": 3, "prioritized_replay": True}),
    "sequences": (R2D2, {"policy_kwargs": {**SMALL, "lstm_hidden_size": 6, "net_arch": [8]}}),
}


def learnt(name: str, count: int) -> torch.Tensor:
    algorithm, settings = CASES[name]
    env = lanes(count, partial(Kept, "frames", "discrete", True))
    chosen: dict[str, Any] = {"policy": "CnnPolicy", "policy_kwargs": SMALL, **settings}
    model = quick(env, algorithm=algorithm, action_mask="info", **chosen)
    model.mode = "eager"  # as nets of larger images have it
    model.learn(90)
    assert model._n_updates > 10
    flat: torch.Tensor = model.learner.flat
    return flat


@SLOW
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", a_few(CASES, "three steps", "priorities"))
def test_learning_is_the_same_with_a_record_and_without(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []

    def counting(function: Any, example: Any) -> Any:
        run = numpy_version(function, example)
        found.append(run is not function)
        return run

    monkeypatch.setattr(replay_buffer, "numpy_version", counting)
    traced = learnt(name, count)
    assert found == [True]
    monkeypatch.setattr(ReplayBuffer, "traced_sampling", lambda replay, noise: replay.sample_from)
    assert torch.equal(traced, learnt(name, count))


@SLOW
def test_what_numpy_does_not_know_is_sampled_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = learnt("one step", 1)
    monkeypatch.setattr(backends, "numpy_function", lambda *_: None)
    assert torch.equal(traced, learnt("one step", 1))


@pytest.mark.parametrize("whole", [False, True])
def test_a_batch_and_its_tensors(whole: bool) -> None:
    a, b, c, d, e, f, g, h, i, j = torch.arange(10).split(1)
    batch = Batch({"x": a, "y": b}, c, d, e, {"x": f, "y": g}, h, i)
    if whole:
        batch = batch._replace(mask=j, next_mask=j, extra={"z": j})
    again = batch.with_tensors(tensor + 1 for tensor in batch.tensors())
    assert torch.cat(batch.tensors()).tolist() == [*range(9), *([9] * 3 if whole else [])]
    assert torch.cat(again.tensors()).tolist() == [*range(1, 10), *([10] * 3 if whole else [])]
    assert again.next_obs == {"x": f + 1, "y": g + 1}
    assert (again.mask is None) == (again.extra is None) == (not whole)
