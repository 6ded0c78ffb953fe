"""What goes wrong in a run: one clear error, everything closed, and a model that is still usable."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.algorithms import DQN
from sb_dqn.callbacks import BaseCallback
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from sb_dqn.logger import configure
from tests.marks import SLOW
from tests.tiny import Faulty, Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

HOOKS = ("_init_callback", "_on_training_start", "_on_rollout_start", "_on_step", "_on_rollout_end", "_on_training_end")


class Breaks(BaseCallback):
    """Raises in one of its hooks."""

    def __init__(self, hook: str, at: int = 1) -> None:
        super().__init__()
        self.calls, self.at, self.closed = 0, at, 0
        setattr(self, hook, self.break_)

    def break_(self) -> bool:
        self.calls += 1
        if self.calls == self.at:
            raise KeyError("by hand")
        return True

    def _on_step(self) -> bool:
        return True

    def _close(self) -> None:
        self.closed += 1


def usable(model: DQN) -> None:
    """It learns, predicts, and holds numbers."""
    assert not model.learning
    before = model._n_updates
    model.learn(40)
    assert model.num_timesteps >= 40
    assert model._n_updates > before
    assert torch.isfinite(model.learner.flat).all()
    model.predict(np.zeros(2))


@pytest.mark.parametrize("hook", HOOKS)
def test_a_callback_that_raises(hook: str, tmp_path: Path) -> None:
    model, callback = quick(tensorboard_log=str(tmp_path)), Breaks(hook)
    with pytest.raises(KeyError, match="by hand"):
        model.learn(40, callback=callback)
    assert callback.closed == 1
    assert model.logs._logger is None  # the files are closed
    usable(model)


def test_a_function_that_raises_in_the_middle() -> None:
    def breaks(locals_: Any, globals_: Any) -> bool:
        if locals_["self"].num_timesteps == 30:
            raise OSError("disk full")
        return True

    model = quick()
    with pytest.raises(OSError, match="disk full"):
        model.learn(100, callback=breaks)
    assert model.num_timesteps == 30
    usable(model)


def test_ctrl_c_in_the_middle(tmp_path: Path) -> None:
    def stops(locals_: Any, globals_: Any) -> bool:
        if locals_["self"].num_timesteps == 30:
            raise KeyboardInterrupt
        return True

    model = quick(tensorboard_log=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        model.learn(100, callback=stops)
    assert model.logs._logger is None
    model.save(tmp_path / "model")
    usable(model)


def test_a_callback_that_says_stop() -> None:
    model = quick()
    model.learn(100, callback=lambda locals_, globals_: locals_["self"].num_timesteps < 23)
    assert model.num_timesteps == 23
    usable(model)


def test_a_logger_of_the_users_is_left_open(tmp_path: Path) -> None:
    model = quick()
    mine = configure(str(tmp_path), ["csv"])
    model.set_logger(mine)
    with pytest.raises(KeyError):
        model.learn(60, callback=Breaks("_on_step", 50), log_interval=2)
    assert model.logger is mine
    model.learn(60, log_interval=2)
    mine.close()
    lines = (tmp_path / "progress.csv").read_text().splitlines()
    assert len(lines) == 1 + 4 + 6  # a head, 4 lines in 49 steps of 5-step episodes, 6 in 60


def test_what_is_no_logger_is_refused_at_once() -> None:
    model = quick()
    wrong: Any = 3
    with pytest.raises(
        ConfigurationError, match=r"logger must have .*, got 3 without record, dump, output_formats. Pass .*configure"
    ):
        model.set_logger(wrong)
    usable(model)


def test_a_function_of_other_arguments_is_refused_before_a_step_is_made() -> None:
    game = Tiny()
    model = quick(game)
    function: Any = lambda: None  # noqa: E731
    with pytest.raises(
        ConfigurationError, match=r"must be a function \(locals, globals\), got .* with the signature \(\)"
    ):
        model.learn(20, callback=function)
    assert not game.actions
    usable(model)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("raise", r"lane 1 .*at step 25: ZeroDivisionError: the pole broke"),
        ("nan reward", r"reward in lane 1 at step 25 must be finite"),
        ("nan observation", r"'obs' in lane 1 at step 25 must be finite"),
    ],
)
def test_an_environment_that_misbehaves(what: str, message: str) -> None:
    faulty = Faulty(what, at=25)
    games = [Tiny(length=10_000), faulty, Tiny(length=10_000)]
    model = quick([partial(itself, game) for game in games])
    with pytest.raises(EnvironmentFault, match=message):
        model.learn(200)
    assert model.num_timesteps == 72  # the tick that failed is not counted
    assert not model.learning
    assert torch.isfinite(model.learner.flat).all()
    usable(model)
    for column in (model.replay.ring.reward, *model.replay.ring.obs.values()):
        assert torch.isfinite(column).all()


def itself(game: Tiny) -> Tiny:
    return game


def test_the_row_before_a_fault_becomes_the_end_of_its_stream() -> None:
    model = quick(Faulty("raise", at=25))
    with pytest.raises(EnvironmentFault):
        model.learn(100)
    model.learn(10)
    last = model.replay.ring.last[:40].nonzero().flatten().tolist()
    assert last == [24]  # 25 rows arrived (a reset and 24 steps); the newest was cut, and is no termination
    assert not model.replay.ring.terminal.any()


class Huge(Tiny):
    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 3e38, terminated, truncated, info  # two of them are more than there is


@SLOW
@pytest.mark.traced
def test_a_loss_that_is_not_finite_is_named_though_its_gradient_is() -> None:
    model = quick(Huge(), loss="huber", gamma=1.0, n_steps=3, train_freq=1, learning_rate=1e-9)
    with pytest.raises(EnvironmentFault, match="losses and gradients must be finite, got NaN or infinity"):
        model.learn(60)
    assert torch.isfinite(model.learner.flat).all()


@pytest.mark.traced
@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_a_gradient_that_is_not_finite_is_named(loss: str) -> None:
    model = quick(Huge(), loss=loss, gamma=1.0, train_freq=1, learning_rate=1e38, max_grad_norm=None)
    with pytest.raises(
        EnvironmentFault, match=r"losses and gradients must be finite, got .* before update \d+ .*Lower learning_rate"
    ):
        model.learn(100)
    assert not model.learning


def test_learn_cannot_be_called_from_inside() -> None:
    model = quick()

    def again(locals_: Any, globals_: Any) -> bool:
        locals_["self"].learn(5)
        return True

    with pytest.raises(ConfigurationError, match="learn must not be called while the model is learning"):
        model.learn(20, callback=again)
    usable(model)


def test_the_environment_cannot_be_exchanged_from_inside() -> None:
    first, second = Tiny(), Tiny()
    model = quick(first)

    def exchange(locals_: Any, globals_: Any) -> bool:
        locals_["self"].set_env(second)
        return True

    with pytest.raises(
        ConfigurationError, match="set_env must not be called while the model is learning. Call it after learn"
    ):
        model.learn(20, callback=exchange)
    assert not second.actions
    model.set_env(second)
    model.learn(20)
    assert second.actions


def test_a_log_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = quick(tensorboard_log=str(tmp_path / "file" / "runs")).learn
    with pytest.raises((ConfigurationError, OSError), match="file"):
        model(20)


def test_a_vector_env_of_four_lanes_begins_anew_after_a_fault() -> None:
    games = [Faulty("raise", at=9 + 7 * lane) for lane in range(4)]
    model, faults = quick([partial(itself, game) for game in games]), 0
    for _ in range(5):
        try:
            model.learn(80, reset_num_timesteps=False)
        except EnvironmentFault:
            faults += 1
    assert faults == 4
    usable(model)


def test_lanes_of_one_and_the_same_game_are_refused() -> None:
    game = Tiny()
    with pytest.raises(ConfigurationError, match="the same environment from two factories"):
        quick(lanes(2, partial(itself, game)))


def test_a_model_that_was_mended_learns_again() -> None:
    model = quick()
    model.learner.finite.fill_(False)  # as a gradient that was not finite leaves it
    model.learn(20)
    assert bool(model.learner.finite)
