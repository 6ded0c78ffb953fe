"""Generalized state-dependent exploration, and noise on actions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise

from sb_dqn.acting.lane_state import HeldNumbers, Redraws
from sb_dqn.algorithms import A2C, ALGORITHMS, DQN, PPO, SAC
from sb_dqn.callbacks import CheckpointCallback
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration.action_noise import ActionNoise, NoisyActions
from sb_dqn.nn.heads.state_dependent import StateDependentGaussian, StateDependentStd
from sb_dqn.spaces import BoxActions
from sb_dqn.types import Rows, Slot
from tests.continuing import differences
from tests.continuous import Reach
from tests.marks import SLOW
from tests.tiny import lanes, quick

N, L, D = 5, 4, 3


@pytest.mark.parametrize("learns_features", [False, True])
@pytest.mark.parametrize("squashed", [False, True])
@pytest.mark.parametrize("full_std", [False, True])
@pytest.mark.parametrize("use_expln", [False, True])
def test_samples_and_log_probabilities_are_those_of_stable_baselines3(
    learns_features: bool, squashed: bool, full_std: bool, use_expln: bool
) -> None:
    torch.manual_seed(0)
    theirs = StateDependentNoiseDistribution(D, full_std, use_expln, squashed, learns_features)
    ours = StateDependentStd((L, D), 0.0, full_std, use_expln)
    theirs.latent_sde_dim = L
    for log_std in (torch.randn(L, D if full_std else 1), torch.rand(L, D if full_std else 1) - 1.5):
        ours.log.data.copy_(log_std)
        torch.testing.assert_close(ours(), theirs.get_std(log_std).expand(L, D), rtol=1e-6, atol=1e-6)
    theirs.latent_sde_dim = L
    theirs.sample_weights(log_std, batch_size=N)
    mean, features = 0.3 * torch.randn(N, D), 0.3 * torch.randn(N, L)
    theirs.proba_distribution(mean, log_std, features)
    distribution = StateDependentGaussian(mean, features, ours(), squashed)
    shared = theirs.exploration_mat / theirs.get_std(log_std)
    own = theirs.exploration_matrices / theirs.get_std(log_std)
    sample = distribution.sample(own.flatten(1))
    as_action = torch.tanh if squashed else torch.clone
    torch.testing.assert_close(as_action(sample), theirs.sample(), rtol=1e-5, atol=1e-5)
    one = distribution.sample(shared.reshape(1, -1))[:1]
    theirs.proba_distribution(mean[:1], log_std, features[:1])
    torch.testing.assert_close(as_action(one), theirs.sample(), rtol=1e-5, atol=1e-5)
    theirs.proba_distribution(mean, log_std, features)
    # where tanh saturates theirs adds 1e-6 to the slope
    expected = theirs.log_prob(as_action(sample))
    torch.testing.assert_close(distribution.log_prob(sample), expected, rtol=1e-5, atol=2e-5)
    if not squashed:
        torch.testing.assert_close(distribution.entropy(sample), theirs.entropy(), rtol=1e-5, atol=1e-5)


def test_the_variance_of_samples_is_that_of_the_density() -> None:
    features, std = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5], [0.1]])
    distribution = StateDependentGaussian(torch.zeros(1, 1), features, std, squashed=False)
    drawn = torch.randn(40_000, 2, generator=torch.Generator().manual_seed(0))
    samples = distribution._replace(mean=torch.zeros(len(drawn), 1), features=features.expand(len(drawn), 2)).sample(
        drawn
    )
    assert float(samples.var()) == pytest.approx(0.5**2 + 0.2**2, rel=0.03)  # not (0.5 + 0.2)^2
    assert float(distribution.marginal.log_std.exp()) == pytest.approx(0.29**0.5, rel=1e-4)


@pytest.mark.parametrize(
    ("redraws", "due"),
    [
        (Redraws(6, 0), [0, 6, 12]),
        (Redraws(6, 4), [0, 4, 6, 10, 12]),  # not 8: each period begins anew
        (Redraws(6, 1), list(range(13))),
        (Redraws(1, 0), list(range(13))),
        (Redraws(0, 0), []),
    ],
)
def test_when_the_noise_changes(redraws: Redraws, due: list[int]) -> None:
    assert [tick for tick in range(13) if redraws.is_due(tick)] == due


def weights_of(model: Any, steps: int) -> list[bytes]:
    """Returns the noise of each tick of a run."""
    seen: list[bytes] = []
    held = model.collector.actor.selector.parts["drawn"]
    take = held.of

    def watched(rows: Rows) -> Any:
        drawn = take(rows)
        seen.append(drawn.tobytes())
        return drawn

    held.of = watched
    model.learn(steps)
    return seen


@SLOW
def test_the_noise_is_held_for_a_rollout() -> None:
    seen = weights_of(quick(lanes(2, Reach), algorithm=PPO, n_steps=8, use_sde=True), 32)
    assert len(set(seen[:8])) == 1
    assert len(set(seen)) == math.ceil(len(seen) / 8) > 1
    env = lanes(2, Reach)
    seen = weights_of(quick(env, algorithm=SAC, train_freq=8, learning_starts=0, use_sde=True), 32)  # four ticks
    assert len(set(seen[:4])) == 1
    assert len(set(seen)) == math.ceil(len(seen) / 4) > 1


@pytest.mark.parametrize(
    ("every", "changed"), [(-1, [[3], []]), (2, [[2], [2]])], ids=["per episode", "every two ticks"]
)
def test_with_train_freq_in_episodes_the_noise_is_of_an_episode_or_of_sde_sample_freq_ticks(
    every: int, changed: list[list[int]]
) -> None:
    by_episode: Any = {"train_freq": (1, "episode"), "use_sde": True, "sde_sample_freq": every}
    model: Any = quick(lanes(2, Reach), algorithm=SAC, **by_episode).learn(2)
    settings = model.acting_settings()["redraws"]
    held = HeldNumbers(model.policy, 2, np.random.default_rng(0), settings)
    seen = [held.of(tick([False, False], first=True))]
    seen += [held.of(tick(last)) for last in ([False, False], [True, False], [False, False])]
    other = HeldNumbers(model.policy, 2, np.random.default_rng(0), settings)
    for rows in (tick([False, False], first=True), tick([False, False]), tick([True, False])):
        other.of(rows)
    resumed = HeldNumbers(model.policy, 2, other.rng, settings)
    resumed.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(resumed.of(tick([False, False])), seen[3])
    found = [
        [number for number in range(1, 4) if (seen[number][lane] != seen[number - 1][lane]).any()] for lane in (0, 1)
    ]
    assert found == changed


def test_features_learn_from_the_noise_in_sac_only() -> None:
    for algorithm, learns in ((PPO, False), (A2C, False), (SAC, True)):
        head: Any = quick(lanes(2, Reach), algorithm=algorithm, use_sde=True).policy.action_head
        assert head(torch.ones(1, head.std.shape[0], requires_grad=True)).features.requires_grad is learns


@SLOW
@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_a_run_with_noise_resumes_bit_for_bit(algorithm: Any, tmp_path: Path) -> None:
    own: dict[str, Any] = (
        {"n_steps": 16}
        if algorithm is PPO
        else {"train_freq": 32, "action_noise": {"sigma": 0.3, "theta": 0.1}, "use_sde_at_warmup": True}
    )
    make = lambda: quick("Pendulum-v1", algorithm=algorithm, use_sde=True, sde_sample_freq=7, **own)  # noqa: E731
    whole = make().learn(110, callback=CheckpointCallback(61, tmp_path, full=True))
    path = min(tmp_path.glob("*.zip"), key=lambda found: int(found.stem.split("_")[2]))
    resumed = algorithm.load(path, env="Pendulum-v1", device="cpu")
    assert resumed.num_timesteps < whole.num_timesteps
    resumed.resume()
    assert differences(whole, resumed) == []


@SLOW
def test_a_worker_process_holds_the_noise_of_its_lanes() -> None:
    model = quick(
        [Reach] * 4, algorithm=SAC, use_sde=True, use_sde_at_warmup=True, action_noise=True, actors="process:2x2"
    )
    model.learn(64)
    model.close()
    assert model._n_updates > 0


def tick(last: list[bool], first: bool = False) -> Rows:
    zero, ones = np.zeros(2, np.float32), np.ones(2, np.bool_)
    slot = Slot({"obs": zero}, zero, zero, ~ones, np.array(last), ones)
    return Rows(None if first else np.zeros((2, 1), np.float32), (slot,), ones, 2)


def test_a_process_of_noise_returns_to_its_mean_and_starts_anew_with_an_episode() -> None:
    actions = BoxActions.of(Reach().action_space)
    size = actions.low.size
    noise = NoisyActions(ActionNoise(sigma=0.0, mean=1.0, theta=0.5, dt=0.5), actions, 2, np.random.default_rng(0))
    middle = np.broadcast_to(0.5 * (actions.low + actions.high), (2, *actions.shape)).astype(np.float32)
    half = 0.5 * (actions.high - actions.low)

    def offsets(rows: Rows) -> list[float]:
        moved = (noise(middle, rows) - middle) / half
        return [float(value) for value in moved.reshape(2, size)[:, 0]]

    assert offsets(tick([False, False], first=True)) == pytest.approx([0.25, 0.25])
    assert offsets(tick([True, False])) == pytest.approx([0.4375, 0.4375])
    assert offsets(tick([False, False])) == pytest.approx([0.25, 0.578125])


def test_the_process_is_that_of_stable_baselines3(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = BoxActions.of(Reach().action_space)
    size = actions.low.size
    theirs = OrnsteinUhlenbeckActionNoise(np.full(size, 0.2), np.full(size, 0.3), theta=0.15, dt=0.01)
    noise = NoisyActions(ActionNoise(0.3, 0.2, 0.15, 0.01), actions, 1, np.random.default_rng(0))
    drawn = np.linspace(-1.0, 1.5, size)
    monkeypatch.setattr(np.random, "normal", lambda size: drawn)
    first = theirs()
    assert first == pytest.approx(0.15 * 0.2 * 0.01 + 0.3 * 0.1 * drawn)
    noise.rng = type("Fixed", (), {"standard_normal": staticmethod(lambda shape, dtype: drawn.reshape(shape))})()
    middle = (0.5 * (actions.low + actions.high))[None].astype(np.float32)
    ones = np.ones(1, np.bool_)
    zero = np.zeros(1, np.float32)
    rows = Rows(None, (Slot({"obs": zero}, zero, zero, ~ones, ~ones, ones),), ones, 1)
    moved = (noise(middle, rows) - middle)[0] / (0.5 * (actions.high - actions.low))
    np.testing.assert_allclose(moved.ravel(), first, atol=1e-6)


def test_noisy_actions_stay_within_the_bounds() -> None:
    model = quick(lanes(2, Reach), algorithm=SAC, action_noise={"sigma": 50.0}).learn(40)
    space = model.action_space
    stored = model.replay_buffer.ring.action.numpy()
    stored = stored[stored[:, 1] != 0.0]  # without rows of a reset
    assert (stored >= space.low - 1e-6).all()
    assert (stored <= space.high + 1e-6).all()
    assert len(stored) >= 30
    assert (np.isclose(stored, space.low) | np.isclose(stored, space.high)).mean() > 0.9


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"action_noise": {"sigma": [0.1] * 7}}, "sigma of action_noise must have . numbers, as the actions, got 7"),
        ({"action_noise": {"sigma": -1.0}}, "sigma of ActionNoise must be .* got -1"),
        ({"use_sde": 3}, "use_sde must be .* got 3"),
        ({"use_sde": True, "policy_kwargs": {"full_std": 2}}, "full_std.* must be .* got 2"),
    ],
)
def test_values_that_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(lanes(2, Reach), algorithm=SAC, **keywords)


def test_discrete_actions_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="action_noise must be None for discrete actions"):
        quick(algorithm=SAC, action_noise=True)
    with pytest.raises(ConfigurationError, match="use_sde must be unset for DQN.*only A2C, PPO and SAC"):
        quick(algorithm=DQN, use_sde=True)
    assert "use_sde" not in ALGORITHMS["PQN"].__doc__
