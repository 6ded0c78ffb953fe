"""`model.replay_buffer.sample(n)` during training: the same learning, bit for bit, as without it; and its shapes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sb_dqn.algorithms import DQN, R2D2, SAC
from sb_dqn.callbacks import BaseCallback
from sb_dqn.errors import ConfigurationError
from tests.continuing import differences
from tests.continuous import Reach
from tests.marks import SLOW, a_few
from tests.tiny import Tiny, lanes, quick

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "uniform": (DQN, {}),
    "priorities": (DQN, {"n_steps": 3, "prioritized_replay": True}),
    "mixed priorities": (DQN, {"prioritized_replay": {"initial": 0.3, "uniform_mix": 0.2}}),
    "sequences": (R2D2, {"batch_T": 4, "warmup_T": 2, "store_rnn_state_interval": 2}),
}


class Sampling(BaseCallback):
    """Samples after every step, once it is possible."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def _on_step(self) -> bool:
        model: Any = self.model
        try:
            model.replay_buffer.sample(5 + self.batches % 7)
            self.batches += 1
        except ConfigurationError:
            assert self.num_timesteps < 20
        return True


def made(case: str, count: int) -> Any:
    algorithm, settings = CASES[case]
    arguments: dict[str, Any] = {"buffer_size": 140 * count, "learning_starts": 60, "train_freq": 3, **settings}
    if algorithm is R2D2:  # it has a replay ratio instead
        arguments.pop("train_freq")
    return quick(lanes(count, partial(Tiny, length=11)), algorithm=algorithm, **arguments)


@SLOW
@pytest.mark.parametrize(
    ("case", "count"),
    a_few([("uniform", 1), ("priorities", 3), ("mixed priorities", 1), ("sequences", 2)], "uniform", "priorities"),
)
def test_learning_is_the_same_bit_for_bit_with_samples_in_between(case: str, count: int) -> None:
    plain, sampled = made(case, count), made(case, count)
    callback = Sampling()
    for total in (300, 150):  # the second one fills the buffer beyond its capacity
        plain.learn(total)
        sampled.learn(total, callback=callback)
        sampled.replay_buffer.sample(40)
    assert callback.batches > 100
    assert plain._n_updates > 20
    assert differences(plain, sampled) == []


@SLOW
def test_a_loaded_replay_buffer_can_be_sampled(tmp_path: Path) -> None:
    model, other = (made("priorities", 2) for _ in range(2))
    model.learn(100)
    model.save_replay_buffer(tmp_path / "replay.zip")
    other.load_replay_buffer(tmp_path / "replay.zip")
    assert torch.equal(model.replay_buffer.sample(20).place, other.replay_buffer.sample(20).place)


def test_fields_of_transitions() -> None:
    model: Any = quick(lanes(2), n_steps=3)
    model.learn(60)
    batch = model.replay_buffer.sample(32)
    assert [x.shape for x in (batch.obs["obs"], batch.next_obs["obs"])] == [(32, 2)] * 2
    assert [x.shape for x in (batch.action, batch.return_, batch.discount, batch.weight)] == [(32,)] * 4
    assert (batch.action.dtype, batch.return_.dtype) == (torch.int64, torch.float32)
    assert (batch.mask, batch.next_mask, batch.extra) == (None, None, None)
    assert set(batch.weight.tolist()) == {1.0}
    assert len(model.replay_buffer.sample().weight) == model.batch_size == 8


@SLOW
def test_fields_of_continuous_actions() -> None:
    model: Any = SAC("MlpPolicy", Reach(), learning_starts=20, buffer_size=200, batch_size=8, seed=0)
    model.learn(40)
    batch = model.replay_buffer.sample(5)
    assert batch.action.shape == (5, *model.action_space.shape)
    assert batch.action.dtype == torch.float32


@SLOW
def test_fields_of_sequences() -> None:
    model = made("sequences", 2)
    model.learn(100)
    batch = model.replay_buffer.sample(3)
    steps, rows = 4, 2 + 4 + model.replay_buffer.ring.n_steps
    assert batch.obs["obs"].shape == (rows * 3, 2)
    assert [len(x) for x in (batch.action, batch.return_, batch.discount, batch.weight)] == [steps * 3] * 4
    assert batch.place.shape == (2, 3)
    assert batch.extra is not None
    assert batch.extra["state"].shape[0] == 3


def test_a_loop_of_ones_own_learns_from_samples() -> None:
    """The batch is what a loss needs: targets by hand, on the network of the model."""
    model = quick(lanes(2))
    model.learn(100)
    batch = model.replay_buffer.sample(64, torch.Generator().manual_seed(0))
    q = model.policy.q_net(batch.obs).of(batch.action)
    with torch.no_grad():
        target = batch.return_ + batch.discount * model.policy.q_net_target(batch.next_obs).q.max(1).values
    loss = (batch.weight * (q - target).square()).mean()
    assert bool(torch.isfinite(torch.autograd.grad(loss, list(model.policy.q_net.parameters()))[0]).all())
