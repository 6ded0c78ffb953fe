"""The loop by its tape: what is called, in which order, and what callbacks can see."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sb_dqn.algorithms import DQN
from sb_dqn.callbacks import BaseCallback
from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.types import Update
from tests.tiny import Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")


class Lines(BaseCallback):
    """Writes down the steps and rollouts, and the updates between them."""

    def __init__(self, model: BaseAlgorithm) -> None:
        super().__init__()
        self.lines: list[str] = []
        gradient_step = model.gradient_step

        def update() -> Update:
            self.lines.append("update")
            return gradient_step()

        model.gradient_step = update  # type: ignore[method-assign]

    def _on_rollout_start(self) -> None:
        self.lines.append("rollout starts")

    def _on_step(self) -> bool:
        self.lines.append(f"step {self.num_timesteps}")
        return True

    def _on_rollout_end(self) -> None:
        self.lines.append("rollout ends")


class Tape(Lines):
    """Writes down all hooks, and what the model does between them."""

    def __init__(self, model: DQN) -> None:
        super().__init__(model)
        sync = model.learner.store.sync_target

        def follow(tau: float = 1.0, times: int = 1) -> None:
            self.lines.append(f"sync {tau:g}")
            sync(tau, times)

        model.learner.store.sync_target = follow  # type: ignore[method-assign]

    def _init_callback(self) -> None:
        self.lines.append("init")

    def _on_training_start(self) -> None:
        self.lines.append("training starts")

    def _on_training_end(self) -> None:
        self.lines.append("training ends")

    def _close(self) -> None:
        self.lines.append("closed")


def taped(total: int, env: Any, **kwargs: Any) -> list[str]:
    model = quick(env, **kwargs)
    tape = Tape(model)
    model.learn(total, callback=tape)
    return tape.lines


def test_one_lane() -> None:
    found = taped(
        6, Tiny(length=3), learning_starts=2, train_freq=2, gradient_steps=2, target_update_interval=3, tau=0.5
    )
    burst = ["rollout ends", "update", "update", "rollout starts"]
    assert found == [
        "init", "training starts", "rollout starts",
        "step 1",
        "step 2",  # not yet: learning starts after 2
        "sync 0.5", "step 3",  # the reset that follows is no step and calls nobody
        *burst, "step 4",
        "step 5",
        "sync 0.5", *burst, "step 6",
        "training ends", "closed",
    ]  # fmt: skip


def test_four_lanes_cross_multiples_at_most_once_a_tick() -> None:
    game = partial(Tiny, length=10_000)
    found = taped(24, lanes(4, game), learning_starts=8, train_freq=6, gradient_steps=1, target_update_interval=6)
    assert [line for line in found if line[:4] in ("step", "sync", "upda")] == [
        "step 4",
        "sync 1", "step 8",  # 6 was crossed; learning starts after 8
        "sync 1", "update", "step 12",
        "step 16",
        "sync 1", "update", "step 20",  # 18
        "sync 1", "update", "step 24",
    ]  # fmt: skip
    tight = taped(12, lanes(4, game), learning_starts=0, train_freq=2, gradient_steps=1, target_update_interval=1)
    assert [line for line in tight if line[:4] in ("step", "sync", "upda")] == [
        "sync 1", "update", "update", "step 4",
        "sync 1", "update", "update", "step 8",
        "sync 1", "update", "update", "step 12",
    ]  # fmt: skip


def test_a_tick_that_crosses_three_intervals_follows_three_times() -> None:
    """Four steps of four lanes, in the units of one: the target is not four times further behind."""
    found = taped(12, lanes(4, partial(Tiny, length=10_000)), tau=0.25, target_update_interval=1, learning_starts=11)
    assert [line for line in found if line[:4] == "sync"] == ["sync 0.683594"] * 3  # 1 - 0.75^4
    found = taped(12, lanes(4, partial(Tiny, length=10_000)), tau=0.25, target_update_interval=3, learning_starts=11)
    assert [line for line in found if line[:4] == "sync"] == [
        "sync 0.25",
        "sync 0.25",
        "sync 0.4375",
    ]  # 3; 6; 9, 12
    fewest = quick(tau=0.05).target_config
    assert fewest.share_after(1) == 0.05  # exactly: what one lane does has not changed


def test_syncs_go_on_over_a_second_learn() -> None:
    model = quick(Tiny(length=10_000), target_update_interval=4)
    tape = Tape(model)
    model.learn(6)
    model.learn(6, reset_num_timesteps=False)
    assert tape.lines.count("sync 1") == 3  # at 4, 8, 12
    model.learn(6)
    assert tape.lines.count("sync 1") == 4  # counted anew: at 4


def test_unequal_lanes_count_their_steps_alone() -> None:
    model = quick([partial(Tiny, length=2), partial(Tiny, length=10_000)])
    ticks: list[int] = []
    model.learn(20, callback=lambda locals_, globals_: ticks.append(locals_["self"].num_timesteps))
    # two steps, two steps, then a reset beside one step
    assert ticks == [2, 4, 5, 7, 9, 10, 12, 14, 15, 17, 19, 20]


class Reads(BaseCallback):
    """Keeps what `locals` holds at every step."""

    NAMES = ("rewards", "dones", "infos", "actions", "new_obs")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        assert self.locals["self"] is self.model
        assert self.locals["env"] is self.model.get_env()
        assert self.locals["total_timesteps"] == 20
        assert self.locals["callback"] is self
        assert self.n_calls == len(self.seen) + 1
        self.seen.append({name: self.locals[name] for name in self.NAMES})
        return True


@pytest.mark.parametrize("kind", ["lanes", "NEXT_STEP", "SAME_STEP"])
def test_what_a_callback_can_read(kind: str) -> None:
    games = [Tiny(length=4, start=5, truncates=True), Tiny(length=4, start=5)]
    makes = [partial(itself, game) for game in games]
    env: Any = makes if kind == "lanes" else SyncVectorEnv(makes, autoreset_mode=AutoresetMode[kind])
    reads = Reads()
    model = quick(env)
    model.learn(20, callback=reads)
    assert len(reads.seen) == 10  # two env steps each; resets call nobody
    for lane, game in enumerate(games):
        actions = [int(one["actions"][lane]) for one in reads.seen]
        assert actions == game.actions[:10]  # as the game numbers them
        assert [float(one["rewards"][lane]) for one in reads.seen] == [float(action == 5) for action in actions]
        assert [bool(one["dones"][lane]) for one in reads.seen] == [step % 4 == 0 for step in range(1, 11)]
        infos = [one["infos"][lane] for one in reads.seen]
        assert [info["episode"]["l"] for info in infos if "episode" in info] == [4, 4]
        returns = [sum(action == 5 for action in actions[start : start + 4]) for start in (0, 4)]
        assert [info["episode"]["r"] for info in infos if "episode" in info] == returns
        ends = [info for info in infos if "terminal_observation" in info]
        assert len(ends) == 2
        assert all(info["TimeLimit.truncated"] is (lane == 0) for info in ends)
    assert all(one["new_obs"].shape == (2, 2) for one in reads.seen)
    assert len({one["new_obs"].tobytes() for one in reads.seen}) > 5  # they may be kept


def itself(game: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return game


def test_a_dict_observation_stays_a_dict() -> None:
    seen = []
    model = quick(Tiny("dict"), "MultiInputPolicy")
    model.learn(3, callback=lambda locals_, globals_: seen.append(locals_["new_obs"]))
    assert set(seen[0]) == {"place", "inner/mode", "inner/bits"}


def test_names_that_are_none() -> None:
    def asks(locals_: Any, globals_: Any) -> bool:
        with pytest.raises(KeyError):
            locals_["reward"]
        assert set(locals_) >= set(Reads.NAMES)
        assert len(locals_) == len(list(locals_))
        return False

    quick().learn(5, callback=asks)


def test_the_rows_of_the_ring_are_the_steps_of_the_game() -> None:
    game = Tiny(length=4)
    model = quick(game)
    model.learn(12)
    ring = model.replay.ring
    rows = [i for i in range(int(ring.cursor[0])) if not bool(ring.last[i])]
    taken = [int(ring.action[i]) for i in rows]
    assert taken == game.actions[:12]
    assert ring.terminal[: int(ring.cursor[0])].tolist() == ring.last[: int(ring.cursor[0])].tolist()
    assert np.flatnonzero(ring.last[: int(ring.cursor[0])]).tolist() == [4, 9, 14]
