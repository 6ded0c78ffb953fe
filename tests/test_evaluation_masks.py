"""Evaluation with action masks: the environments raise on illegal actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sb_dqn.algorithms import DQN
from sb_dqn.callbacks import EvalCallback
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError
from sb_dqn.evaluation import evaluate_policy, play_episodes
from tests.marks import SLOW
from tests.masked_toys import MaskedGame
from tests.tiny import quick
from tests.toys import KINDS

pytestmark = pytest.mark.usefixtures("eagerly")


def games(where: str, space: str = "discrete", lanes: int = 2) -> list[Any]:
    return [lambda lane=lane: MaskedGame(lane, space, where) for lane in range(lanes)]


def model_for(where: str, space: str = "discrete", **kwargs: Any) -> DQN:
    policy = "MultiInputPolicy" if where == "legal" else "MlpPolicy"
    return quick(games(where, space), policy, action_mask=where, learning_starts=4, **kwargs)


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", ["discrete", "uneven"])
@pytest.mark.parametrize("where", ["info", "legal"])
def test_only_legal_actions_are_played(where: str, space: str, kind: str, deterministic: bool) -> None:
    model = model_for(where, space)
    played = [MaskedGame(lane, space, where) for lane in range(2)]
    env = KINDS[kind]([lambda game=game: game for game in played])  # type: ignore[misc]  # bound by default
    _, lengths = evaluate_policy(model, env, 6, deterministic, return_episode_rewards=True)
    assert isinstance(lengths, list)
    assert len(lengths) == 6
    taken = [tuple(action) for game in played for action in game.played.values()]
    assert len(taken) >= sum(lengths)
    assert len(set(taken)) > 1


@SLOW
@pytest.mark.parametrize(("where", "space"), [("info", "discrete"), ("legal", "uneven")])
@pytest.mark.parametrize("exploration", ["epsilon", "boltzmann", {"ladder": "apex"}])
def test_only_legal_actions_are_learned_from(where: str, space: str, exploration: Any) -> None:
    model = model_for(where, space, exploration=exploration, exploration_fraction=0.5)
    callback = EvalCallback(games(where, space, 1), n_eval_episodes=2, eval_freq=40, verbose=0)
    model.learn(120, callback=callback)
    assert callback.n_evaluations == 3
    assert model._n_updates > 0


def test_a_stream_without_masks_is_refused() -> None:
    stream = open_stream(games("info"))
    with pytest.raises(ConfigurationError, match=r"got action_mask='info'. Pass"):
        play_episodes(model_for("info"), stream, 2)


def test_a_model_without_masks_gets_none() -> None:
    class Model:
        def predict(self, observation: Any, state: Any, episode_start: Any, deterministic: bool) -> tuple[Any, Any]:
            return np.zeros(len(observation), np.int64) - 1, None

    played = play_episodes(Model(), open_stream([lambda: Free()]), 2)
    assert len(played.returns) == 2


class Free(MaskedGame):
    """Environment without masks in which all actions are legal."""

    def _answer(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self.wanted[self.game.log[-1].steps[-1].frame] = np.ones(5, bool)
        return observation, info
