"""`predict`: what it takes, what it gives back, what it refuses, and how often it explores."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn.algorithms import DQN, SAC
from sb_dqn.envs import make_atari_env, open_stream
from sb_dqn.errors import SpaceError
from sb_dqn.spaces import BoxActions
from tests.tiny import OBSERVATIONS, Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")


def biased(best: int, env: Any = None, **kwargs: Any) -> DQN:
    """A model whose greedy action has the index `best`."""
    model = quick(Tiny(start=5) if env is None else env, **kwargs)
    with torch.no_grad():
        model.learner.flat.zero_()
        model.policy.get_parameter("q_net.head.outputs.of_actions.bias")[best] = 1.0
    return model


def test_one_observation() -> None:
    action, state = biased(2).predict(np.zeros(2, np.float32), deterministic=True)
    assert np.shape(action) == ()
    assert action == 7  # the action space starts at 5
    assert state is None


def test_what_reset_returns_is_no_observation() -> None:
    with pytest.raises(SpaceError, match=r"\(observation, info\) that gymnasium's reset returns. Unpack it"):
        quick().predict(Tiny().reset())


def test_a_batch_of_any_size() -> None:
    model = biased(1)
    for count in (1, 2, 7, 2):
        action, _ = model.predict(np.zeros((count, 2), np.float32), deterministic=True)
        assert action.shape == (count,)
        assert action.dtype == np.int64
        assert set(action.tolist()) == {6}


def test_the_number_of_lanes_does_not_matter() -> None:
    model = biased(1, lanes(3, partial(Tiny, start=5)))
    assert model.predict(np.zeros(2), deterministic=True)[0] == 6
    assert model.predict(np.zeros((5, 2)), deterministic=True)[0].tolist() == [6] * 5


def test_lists_and_float64_are_fine() -> None:
    assert biased(0).predict([0.5, 1.5], deterministic=True)[0] == 5
    assert biased(0).predict(np.zeros(2), deterministic=True)[0] == 5


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(3), r"must have shape \(2,\), .* got \(3,\)"),
        (np.zeros((1, 1, 2)), r"must have shape .* got \(1, 1, 2\)"),
        (np.array([np.nan, 0]), "must be finite as float32"),
        (np.array(["a", "b"]), "got <U1"),
        ({"place": np.zeros(2)}, r"must have the keys .* got \['place'\]"),
        (None, r"must have shape .* got \(\)"),
    ],
)
def test_observations_that_are_refused(observation: Any, message: str) -> None:
    model = biased(0)
    with pytest.raises(SpaceError, match=message):
        model.predict(observation)
    assert model.predict(np.zeros(2), deterministic=True)[0] == 5


@pytest.mark.parametrize("missing", ["place", "inner"])
def test_keys_that_are_missing(missing: str) -> None:
    model = quick(Tiny("dict"), "MultiInputPolicy")
    observation = OBSERVATIONS["dict"].sample()
    del observation[missing]
    with pytest.raises(SpaceError, match=r"must have the keys \['inner/bits', 'inner/mode', 'place'\]"):
        model.predict(observation)


def test_exploration_is_drawn_for_each_observation() -> None:
    model = biased(1)
    model.exploration.load_state_dict({**model.exploration.state_dict(), "epsilon": 0.6})
    draws = 20_000
    action, _ = model.predict(np.zeros((draws, 2), np.float32))
    counts = np.bincount(action - 5, minlength=3) / draws
    assert np.abs(counts - [0.2, 0.6, 0.2]).max() < 4.5 * np.sqrt(0.6 * 0.4 / draws)
    assert set(model.predict(np.zeros((100, 2), np.float32), deterministic=True)[0].tolist()) == {6}


def test_before_any_learning_epsilon_is_the_first_one() -> None:
    assert set(biased(1).predict(np.zeros((200, 2)))[0].tolist()) == {5, 6, 7}


def test_the_same_seed_explores_alike() -> None:
    found = [biased(1, seed=seed).predict(np.zeros((50, 2)))[0].tolist() for seed in (3, 3, 4)]
    assert found[0] == found[1] != found[2]


class Stacked:
    """A model that stacks four frames by itself; its nets write down what they see."""

    def __init__(self) -> None:
        env = make_atari_env("ALE/Pong-v5", 1)
        self.model = quick(env, "CnnPolicy", policy_kwargs={"features_extractor_kwargs": {"features_dim": 4}})
        self.seen: list[torch.Tensor] = []
        self.model.policy.q_net.register_forward_pre_hook(
            lambda module, arguments: self.seen.append(arguments[0]["obs"].clone())
        )

    def depths(self) -> list[Any]:
        """One pixel of each frame that was seen last, `[n, 4]`."""
        return self.seen[-1][:, :, 0, 0].tolist()


def frames(*numbers: int) -> np.ndarray[Any, Any]:
    return np.stack([np.full((1, 84, 84), number, np.uint8) for number in numbers])


def test_single_frames_are_stacked_through_the_state() -> None:
    stacked, state = Stacked(), None
    for number in (1, 2, 3, 4, 5):
        _, state = stacked.model.predict(frames(number), state, deterministic=True)
    assert stacked.depths() == [[2, 3, 4, 5]]
    _, state = stacked.model.predict(frames(9), state, np.array([True]), deterministic=True)
    assert stacked.depths() == [[0, 0, 0, 9]]


def test_lanes_are_cleared_one_by_one() -> None:
    stacked = Stacked()
    _, state = stacked.model.predict(frames(1, 11), None, deterministic=True)
    _, state = stacked.model.predict(frames(2, 12), state, np.array([False, True]), deterministic=True)
    assert stacked.depths() == [[0, 0, 1, 2], [0, 0, 0, 12]]
    action, _ = stacked.model.predict(frames(7)[0], None, deterministic=True)
    assert np.shape(action) == ()
    assert stacked.depths() == [[0, 0, 0, 7]]


def test_a_whole_stack_is_seen_as_it_is() -> None:
    stacked = Stacked()
    whole = frames(1, 2, 3, 4).reshape(1, 4, 84, 84)
    stacked.model.predict(whole, deterministic=True)
    assert stacked.depths() == [[1, 2, 3, 4]]


def test_a_state_of_another_number_of_observations_is_refused() -> None:
    stacked = Stacked()
    _, state = stacked.model.predict(frames(1, 11), None)
    with pytest.raises(SpaceError, match="state must hold the frame stacks of 1 observations"):
        stacked.model.predict(frames(1), state)


def test_a_state_that_no_predict_returned_is_refused() -> None:
    with pytest.raises(SpaceError, match="Pass the state that the last predict returned, or None"):
        Stacked().model.predict(frames(1), np.zeros(3))


def test_as_many_episode_starts_as_observations() -> None:
    with pytest.raises(SpaceError, match=r"episode_start must have shape \(1,\), got \(2,\)"):
        Stacked().model.predict(frames(1), None, np.array([True, False]))


def test_actions_have_the_dtype_of_the_space_and_lie_within_it() -> None:
    class Narrow(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(-1, 1, (2,))
        action_space = spaces.Box(-0.3, 0.1, (1,), np.float64)

    model = SAC("MlpPolicy", Narrow(), buffer_size=100, policy_kwargs={"net_arch": [4]}, seed=0)
    with torch.no_grad():
        model.policy.nets.actor.head.outputs.bias[0] = 100.0
    action = model.predict(np.zeros(2, np.float32), deterministic=True)[0]
    assert action.dtype == np.float64
    assert Narrow.action_space.contains(action)
    rounded = np.array([0.1], np.float32)
    assert rounded[0] > np.float64(0.1)
    assert Narrow.action_space.contains(BoxActions.of(Narrow.action_space).in_space(rounded))


def test_masks_of_branches_may_be_a_tuple() -> None:
    class Branched(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(-1, 1, (2,))
        action_space = spaces.MultiDiscrete([3, 2])

    model = DQN("MlpPolicy", Branched(), action_mask="info", buffer_size=100, policy_kwargs={"net_arch": [4]}, seed=0)
    masks = (np.array([False, True, False]), np.array([True, False]))
    obs = np.zeros((2, 2), np.float32)
    assert model.predict(obs[0], action_masks=masks)[0].tolist() == [1, 0]
    several = np.empty(2, object)
    several[:] = [masks, masks]
    assert model.predict(obs, action_masks=several)[0].tolist() == [[1, 0], [1, 0]]


def test_single_frames_of_other_numbers_than_bytes_are_stacked() -> None:
    class Floats(gymnasium.Env[Any, Any]):
        observation_space, action_space = spaces.Box(0, 1, (1, 36, 36)), spaces.Discrete(2)

    stream = open_stream(Floats(), frame_stack=4)
    model = DQN("MlpPolicy", stream, buffer_size=100, policy_kwargs={"net_arch": [4]}, seed=0)
    action, state = model.predict(np.full((1, 36, 36), 0.5, np.float32), deterministic=True)
    assert action in (0, 1)
    assert next(iter(state.values())).shape == (1, 4, 36, 36)
