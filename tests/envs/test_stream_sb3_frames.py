"""Frame stacks of Stable-Baselines3: each frame is stored once, and batches equal those of whole stacks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn import DQN, PPO, evaluate_policy
from sb_dqn.buffers import FrameStack
from sb_dqn.buffers.n_step_transitions import Horizon, TransitionView
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import flatten_space
from tests.marks import SLOW, a_few

pytestmark = pytest.mark.usefixtures("eagerly")

vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="the real classes are a peer")
ACTIONS = spaces.Discrete(3)
NETS = {"features_extractor_kwargs": {"features_dim": 8, "channels": (4,)}, "net_arch": [8]}


class Film(gymnasium.Env[Any, Any]):
    """Numbered frames of random pixels; episodes of 1 to 7 steps, every third truncated by a time limit."""

    action_space = ACTIONS

    def __init__(self, *shape: int) -> None:
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left, self.episodes = int(self.np_random.integers(1, 8)), self.episodes + 1
        return self.frame(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        ended, cut = self.left == 0, self.episodes % 3 == 0
        return self.frame(), float(action) + float(self.np_random.random()), ended and not cut, ended and cut, {}

    def frame(self) -> Any:
        return self.np_random.integers(1, 256, self.observation_space.shape, np.uint8)  # no pixel is that of padding


def lanes(shape: tuple[int, ...], count: int = 2) -> Any:
    return vec_env.DummyVecEnv([lambda: Film(*shape)] * count)


KINDS: dict[str, tuple[Callable[[], Any], bool, tuple[int, ...]]] = {
    "grey": (lambda: vec_env.VecFrameStack(lanes((12, 14, 1)), 4), True, (1, 12, 14)),
    "grey turned": (
        lambda: vec_env.VecTransposeImage(vec_env.VecFrameStack(lanes((12, 14, 1)), 4)),
        False,
        (1, 12, 14),
    ),
    "not turned": (
        lambda: vec_env.VecTransposeImage(vec_env.VecFrameStack(lanes((12, 14, 1)), 4), skip=True),
        True,
        (1, 12, 14),
    ),
    "turned before": (
        lambda: vec_env.VecFrameStack(vec_env.VecTransposeImage(lanes((12, 14, 3))), 3),
        False,
        (3, 12, 14),
    ),
    "color": (lambda: vec_env.VecFrameStack(lanes((12, 14, 3)), 2), True, (3, 12, 14)),
    "color turned": (
        lambda: vec_env.VecTransposeImage(vec_env.VecFrameStack(lanes((14, 14, 3)), 4)),
        False,
        (3, 14, 14),
    ),
    "planes first": (lambda: vec_env.VecFrameStack(lanes((2, 12, 14)), 3, channels_order="first"), False, (2, 12, 14)),
}
"""Environment, True for stacks [H, W, C], shape of a frame."""


def channels_first(stack: Any, last: bool) -> Any:
    return np.moveaxis(np.asarray(stack), -1, -3) if last else np.asarray(stack)


def played(
    env: Any, frame_stack: int | None, n_steps: int, ticks: int = 90, restart: int = 40
) -> tuple[Any, Ring, list[Any]]:
    """Returns a stream, the ring of its rows, and the observations while acting."""
    stream = open_stream(env, frame_stack=frame_stack)
    leaves, count = flatten_space(stream.observation_space), stream.blueprint.frame_stack
    ring = Ring(
        Layout(100 * stream.num_envs, stream.num_envs, leaves, num_actions=3, frame_stack=count, n_steps=n_steps)
    )
    acting, seen, rng = FrameStack(count, stream.num_envs, leaves), [], np.random.default_rng(0)
    rows = stream.begin(seed=3)
    for tick in range(ticks):
        ring.cut() if rows.action is None else ring.depart(rows.action)
        for slot in rows.slots:
            ring.arrive(slot)
        acting.extend(rows)
        seen.append(acting.stacked()["obs"].copy())
        rows = stream.begin(seed=4) if tick == restart else stream.step(rng.integers(0, 3, stream.num_envs))
    ring.refresh_bounds()
    return stream, ring, seen


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_equal_those_of_whole_stacks(kind: str, n_steps: int) -> None:
    make, last, frame = KINDS[kind]
    stream, ring, seen = played(make(), None, n_steps)
    whole, reference, shown = played(make(), 1, n_steps)
    assert stream.observation_space.shape == frame
    assert stream.blueprint.observation_space.shape == (frame[0] * stream.blueprint.frame_stack, *frame[1:])
    assert whole.blueprint.frame_stack == 1
    assert whole.observation_space == whole.env.observation_space
    for ours, theirs in zip(seen, shown, strict=True):
        np.testing.assert_array_equal(ours, channels_first(theirs, last))
    pairs = torch.cartesian_prod(torch.arange(2), torch.arange(int(ring.cursor.min())))
    pairs = pairs[ring.may_start(*pairs.T) & reference.may_start(*pairs.T)]
    lane, row = pairs.T
    assert len(row) > 130  # of 180 and more: the rest are ends
    views = [TransitionView(one, Horizon(one.n_steps, 0.9)) for one in (ring, reference)]
    ours, theirs = (view.gather(lane, row, torch.ones(len(row))) for view in views)
    for name in ("action", "return_", "discount"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=0, atol=0)
    np.testing.assert_array_equal(ours.obs["obs"], channels_first(theirs.obs["obs"], last))
    np.testing.assert_array_equal(ours.next_obs["obs"], channels_first(theirs.next_obs["obs"], last))


@SLOW
@pytest.mark.parametrize("cls", [DQN, PPO])
@pytest.mark.parametrize("kind", a_few(["grey", "grey turned", "color"], "grey turned"))
def test_models_learn_the_same_from_frames_as_from_whole_stacks(kind: str, cls: Any) -> None:
    make, _, frame = KINDS[kind]
    further: dict[str, Any] = (
        {"n_steps": 16, "batch_size": 8}
        if cls is PPO
        else {
            "buffer_size": 400,
            "learning_starts": 30,
            "batch_size": 8,
            "train_freq": 1,
            "target_update_interval": 20,
        }
    )
    models = [
        cls("CnnPolicy", env, policy_kwargs=NETS, seed=0, device="cpu", **further)
        for env in (make(), open_stream(make(), frame_stack=1))
    ]
    ours, theirs = (model.learn(160) for model in models)
    assert (ours.blueprint.frame_stack > 1, theirs.blueprint.frame_stack) == (True, 1)
    for name, weights in theirs.policy.state_dict().items():
        torch.testing.assert_close(ours.policy.state_dict()[name], weights, rtol=1e-4, atol=1e-6, msg=name)
    stacks = make()
    seen = stacks.reset()
    for _ in range(10):  # Stable-Baselines3's loop: whole stacks, as the environment has them
        action, _ = ours.predict(seen, deterministic=True)
        assert action.tolist() == theirs.predict(seen, deterministic=True)[0].tolist()
        seen = stacks.step(action)[0]
    if cls is DQN:
        rows = [model.replay.ring.layout.bytes_per_row for model in models]
        assert rows[1] - rows[0] == (ours.blueprint.frame_stack - 1) * np.prod(frame)


def test_predict_from_single_frames_with_a_state() -> None:
    model = DQN("CnnPolicy", KINDS["grey"][0](), buffer_size=100, policy_kwargs=NETS, seed=0)
    first, second = np.random.default_rng(0).integers(0, 256, (2, 1, 12, 14, 1), np.uint8)
    _, state = model.predict(first, deterministic=True)
    _, state = model.predict(second, state=state, deterministic=True)
    np.testing.assert_array_equal(state["obs"][0, 2:], np.stack([first[0, ..., 0], second[0, ..., 0]]))
    with pytest.raises(ValueError, match=r"must have shape \(4, 12, 14\).* got \(12, 12, 4\)"):
        model.predict(np.zeros((12, 12, 4), np.uint8))


def test_evaluating_saving_and_loading(tmp_path: Path) -> None:
    make = KINDS["grey"][0]
    model = DQN("CnnPolicy", make(), buffer_size=100, learning_starts=20, policy_kwargs=NETS, seed=0, device="cpu")
    model.learn(60)
    score = evaluate_policy(model, make(), n_eval_episodes=4)
    assert score == evaluate_policy(model, KINDS["grey turned"][0](), n_eval_episodes=4)
    assert score == evaluate_policy(model, vec_env.VecMonitor(make()), n_eval_episodes=4)
    path = model.save(tmp_path / "model")
    again = DQN.load(path, env=make(), device="cpu")
    again.learn(20, reset_num_timesteps=False)
    assert evaluate_policy(DQN.load(path, device="cpu"), make(), n_eval_episodes=4) == score


def test_models_of_whole_stacks_keep_whole_stacks(tmp_path: Path) -> None:
    make = KINDS["grey"][0]
    model = DQN("CnnPolicy", open_stream(make(), frame_stack=1), buffer_size=100, policy_kwargs=NETS, device="cpu")
    assert model.observation_space == make().observation_space
    again = DQN.load(model.save(tmp_path / "model"), env=make(), device="cpu")  # as files of before
    assert (again.blueprint.frame_stack, again.observation_space.shape) == (1, (12, 14, 4))
    again.set_env(make())
    again.learn(20)
    evaluate_policy(again, make(), n_eval_episodes=2)


class Both(Film):
    """Environment with a Dict of frames and numbers."""

    def __init__(self) -> None:
        super().__init__(12, 14, 1)
        self.pixels = self.observation_space
        self.observation_space = spaces.Dict({"pixels": self.pixels, "row": spaces.Box(-1, 1, (2,))})

    def frame(self) -> Any:
        return {"pixels": self.np_random.integers(1, 256, (12, 14, 1), np.uint8), "row": np.zeros(2, np.float32)}


WHOLE: dict[str, Callable[[], Any]] = {
    "below another wrapper": lambda: vec_env.VecNormalize(vec_env.VecFrameStack(lanes((12, 14, 1)), 4), norm_obs=False),
    "dict": lambda: vec_env.VecFrameStack(vec_env.DummyVecEnv([Both]), 4),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_stacks_that_are_stored_whole_warn_once(kind: str) -> None:
    policy = "MultiInputPolicy" if kind == "dict" else "CnnPolicy"
    message = r"replay of 200 rows .* bytes a row: each row holds 4 frames, though each frame is needed once.*outermost wrapper"
    with pytest.warns(UserWarning, match=message) as record:
        model = DQN(policy, WHOLE[kind](), buffer_size=200, learning_starts=20)
    assert len(record) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(40)
        DQN(policy, open_stream(WHOLE[kind](), frame_stack=1), buffer_size=200)
        DQN("MlpPolicy", vec_env.VecFrameStack(vec_env.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]), 4))


def test_other_depths_and_single_frames() -> None:
    make = KINDS["grey"][0]
    assert open_stream(make(), frame_stack=2).blueprint.observation_space.shape == (2, 12, 14)
    assert open_stream(lanes((1, 12, 14)), frame_stack=2).blueprint.observation_space.shape == (2, 12, 14)
    with pytest.raises(ConfigurationError, match="single frames .*with frame_stack=2"):
        open_stream(lanes((12, 14, 1)), frame_stack=2)


def grey_pong() -> Any:
    """Makes Pong with Stable-Baselines3's wrappers except the scaling one, which requires OpenCV."""
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")
    env = gymnasium.make("PongNoFrameskip-v4", obs_type="grayscale")
    env = wrappers.MaxAndSkipEnv(wrappers.NoopResetEnv(gymnasium.wrappers.ReshapeObservation(env, (210, 160, 1))))
    return wrappers.ClipRewardEnv(wrappers.FireResetEnv(wrappers.EpisodicLifeEnv(env)))


@SLOW
def test_atari_of_stable_baselines3_stores_single_frames() -> None:
    pytest.importorskip("ale_py")
    env = vec_env.VecFrameStack(vec_env.DummyVecEnv([grey_pong]), 4)
    model = DQN("CnnPolicy", env, buffer_size=200, learning_starts=20, batch_size=4, seed=0, device="cpu")
    model.learn(30)
    assert model.observation_space.shape == (4, 210, 160)
    assert model.replay.ring.obs["obs"].shape[1:] == (1, 210, 160)
    assert model.replay.ring.layout.bytes_per_row < 210 * 160 + 20
    env.close()
