"""SAC as a whole: one update beside a naive one, every kind of observation and switch, files, and what is refused."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from sb_dqn.algorithms import DQN, PQN, SAC
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.errors import CheckpointError, ConfigurationError, SpaceError
from sb_dqn.evaluation import evaluate_policy
from sb_dqn.logger import configure
from sb_dqn.policies import SACPolicy
from tests.continuous import Reach, quick_sac
from tests.marks import SLOW, a_few
from tests.masked_toys import MaskedGame
from tests.tiny import SMALL_CNN, Tiny, lanes

pytestmark = pytest.mark.usefixtures("eagerly")

OBS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


# ---- one update
def naive_losses(model: SAC, batch: Any) -> dict[str, torch.Tensor]:
    """The three losses as the paper has them, one critic after the other, actions and densities by hand."""
    nets: Any = model.policy.nets
    target, head = model.policy.critics_target, nets.actor.head
    drawn = model.learner.noises[0].normal.view(2, -1, 2)
    alpha = nets.log_alpha.value.exp()
    low, high = (torch.as_tensor(getattr(model.action_space, end)) for end in ("low", "high"))

    def act(obs: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = head.outputs(nets.actor.tower(nets.actor.features(obs))).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        u = mean + normal.stddev * noise
        return u.tanh(), (normal.log_prob(u) - torch.log(1 - u.tanh() ** 2)).sum(1)

    def values(critics: Any, obs: Any, action: torch.Tensor) -> list[torch.Tensor]:
        x = torch.cat([critics.features(obs), action], 1)
        stacks = zip(critics.stacks.towers, critics.stacks.heads, strict=True)
        return [head(tower(x))[:, 0] for tower, head in stacks]

    next_action, next_log_prob = act(batch.next_obs, drawn[1])
    one, two = values(target, batch.next_obs, next_action)
    y = (batch.return_ + batch.discount * (torch.minimum(one, two) - alpha * next_log_prob)).detach()
    taken = 2 * (batch.action - low) / (high - low) - 1
    action, log_prob = act(batch.obs, drawn[0])
    one, two = values(nets.critics, batch.obs, action)
    return {
        "critics": sum(0.5 * (q - y).square().mean() for q in values(nets.critics, batch.obs, taken)),
        "actor": (alpha.detach() * log_prob - torch.minimum(one, two)).mean(),
        "log_alpha": -(nets.log_alpha.value * (log_prob - 2.0).detach()).mean(),
    }


def test_one_gradient_is_that_of_three_losses() -> None:
    model = quick_sac(learning_starts=30, n_steps=2).learn(30)
    with torch.no_grad():
        model.learner.flat_target.add_(0.1)  # so that target and online critics differ
    model.replay.refresh()
    batch = model.replay.sample_from(torch.rand(model.replay.sampler.noise_shape, dtype=torch.float64))
    model.learner.prepare_update(model.rng.noise)
    gradient, priority, update = model.learner.gradient(batch)
    losses = naive_losses(model, batch)
    nets = model.policy.nets
    expected: list[torch.Tensor] = []
    for name, part in (("critics", nets.critics), ("actor", nets.actor), ("log_alpha", nets.log_alpha)):
        expected += torch.autograd.grad(losses[name], list(part.parameters()), retain_graph=True)
    torch.testing.assert_close(gradient, torch.cat([part.flatten() for part in expected]), atol=1e-5, rtol=1e-4)
    told = dict(zip(model.learner.objective.reports, update.reports.tolist(), strict=True))
    assert told["critic_loss"] == pytest.approx(losses["critics"].item(), rel=1e-4)
    assert told["actor_loss"] == pytest.approx(losses["actor"].item(), rel=1e-4)
    assert told["ent_coef_loss"] == pytest.approx(losses["log_alpha"].item(), abs=1e-6)
    assert told["ent_coef"] == pytest.approx(nets.log_alpha.value.exp().item())
    assert (priority >= 0).all()
    assert told["td_error"] == pytest.approx(priority.mean().item(), rel=1e-4)


@SLOW
@pytest.mark.traced
def test_traced_updates_equal_those_that_are_not() -> None:
    ends = []
    for mode in ("eager", "traced"):
        model = quick_sac()
        model.mode = mode
        model.attach(model.stream)  # type: ignore[arg-type]  # there is one
        model.learn(40)
        ends.append(torch.cat([model.learner.flat, model.learner.flat_target]).clone())
    torch.testing.assert_close(ends[0], ends[1], atol=1e-5, rtol=1e-4)


def test_choices_learn_by_expectation() -> None:
    model = quick_sac(Tiny(), learning_starts=30).learn(30)
    nets, target = model.policy.nets, model.policy.critics_target
    model.replay.refresh()
    batch = model.replay.sample_from(torch.rand(model.replay.sampler.noise_shape, dtype=torch.float64))
    gradient, *_ = model.learner.gradient(batch)
    alpha = nets.log_alpha.value.exp()
    logp, next_logp = nets.policy(batch.obs).logp, nets.policy(batch.next_obs).logp
    q = nets.critics.stacks(nets.critics.features(batch.obs))
    next_q = target.stacks(target.features(batch.next_obs)).amin(0)
    next_value = sum(next_logp[:, a].exp() * (next_q[:, a] - alpha * next_logp[:, a]) for a in range(3))
    y = (batch.return_ + batch.discount * next_value).detach()
    taken = q[:, torch.arange(len(y)), batch.action]
    entropy = -(logp.exp() * logp).sum(1)
    losses: list[tuple[Any, nn.Module]] = [
        (0.5 * (taken - y).square().sum(0).mean(), nets.critics),
        ((logp.exp() * (alpha.detach() * logp - q.amin(0).detach())).sum(1).mean(), nets.actor),
        ((nets.log_alpha.value * (entropy - 0.98 * math.log(3)).detach()).mean(), nets.log_alpha),
    ]
    expected = [torch.autograd.grad(loss, list(part.parameters()), retain_graph=True) for loss, part in losses]
    flat = torch.cat([one.flatten() for part in expected for one in part])
    torch.testing.assert_close(gradient, flat, atol=1e-5, rtol=1e-4)


def test_target_critics_follow_after_updates() -> None:
    model = quick_sac(train_freq=4, gradient_steps=3, target_update_interval=2, tau=0.5, learning_starts=3)
    model.learn(4)  # the first batch falls due with it
    moved: list[tuple[int, float]] = []
    follow = model.learner.store.sync_target

    def watched(tau: float = 1.0) -> None:
        moved.append((model._n_updates + 1, tau))
        follow(tau)

    model.learner.store.sync_target = watched  # type: ignore[assignment,method-assign]  # to see when it is called
    before = model._n_updates
    model.learn(12, reset_num_timesteps=False)
    assert model._n_updates == before + 9
    assert moved == [(n, 0.5) for n in range(before + 1, before + 10) if n % 2 == 0]
    critics = sum(parameter.numel() for parameter in model.policy.nets.critics.parameters())
    assert model.learner.flat_target.numel() == critics < model.learner.flat.numel()


def test_polyak() -> None:
    model = quick_sac()
    with torch.no_grad():
        model.learner.flat.fill_(3.0)
        model.learner.flat_target.fill_(1.0)
    for expected in (1.01, 1.01995):  # decoy: from the wrong side 2.99
        model.learner.store.sync_target(0.005)
        assert next(model.policy.critics_target.parameters()).flatten()[0].item() == pytest.approx(expected)


# ---- acting
@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_stay_within_the_bounds(dtype: Any, shape: tuple[int, ...]) -> None:
    env = Reach(dtype=dtype, shape=shape, length=7)  # it asserts that each action is its own
    model = quick_sac(env).learn(30)
    with torch.no_grad():
        model.policy.nets.actor.head.outputs.weight.mul_(1e4)  # tanh becomes 1
    model.learn(20, reset_num_timesteps=False)
    ends = np.array(env.actions[-10:])
    low, high = env.action_space.low, env.action_space.high
    assert np.isclose(ends, low).any() or np.isclose(ends, high).any()
    for deterministic in (True, False):
        action, _ = model.predict(OBS, deterministic=deterministic)
        assert action.shape == (40, *shape)
        assert action.dtype == dtype
        assert ((action >= low) & (action <= high)).all()
    assert model.predict(OBS[0])[0].shape == shape


def test_predict_draws_unless_it_shall_not() -> None:
    model, twin = quick_sac().learn(30), quick_sac().learn(30)
    fixed = model.predict(OBS, deterministic=True)[0]
    assert np.array_equal(fixed, model.predict(OBS, deterministic=True)[0])
    drawn = model.predict(OBS)[0]
    assert not np.array_equal(drawn, model.predict(OBS)[0])
    assert np.array_equal(drawn, twin.predict(OBS)[0])
    choices = quick_sac(Tiny(start=4)).learn(30)
    assert set(choices.predict(np.repeat(OBS, 20, axis=0))[0].tolist()) == {4, 5, 6}
    with pytest.raises(SpaceError, match="numbers between bounds"):
        model.predict(OBS, action_masks=np.ones((40, 2)))


def test_uniform_until_it_learns() -> None:
    env = Reach(length=1000)
    quick_sac(env, learning_starts=400, buffer_size=1000).learn(399)
    taken = np.array(env.actions)
    middle = (env.action_space.low + env.action_space.high) / 2
    np.testing.assert_allclose(taken.mean(0), middle, atol=0.2)
    assert taken.std(0) == pytest.approx((env.action_space.high - env.action_space.low) / math.sqrt(12), rel=0.1)


@SLOW
def test_masks_are_obeyed() -> None:
    model = quick_sac(MaskedGame(), action_mask="info").learn(300)  # the game refuses what is not legal
    mask = np.array([[False, True, False, False, True]] * 60)
    obs = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    for deterministic in (True, False):
        action = model.predict(obs, deterministic=deterministic, action_masks=mask)[0]
        assert set((action + 1).tolist()) <= {1, 4}
    assert model._n_updates > 200


# ---- the temperature
def test_temperature_follows_the_entropy() -> None:
    high, low = (quick_sac(target_entropy=entropy, learning_rate=0.02).learn(60) for entropy in (20.0, -40.0))
    assert high.policy.nets.log_alpha.value > 0.3
    assert low.policy.nets.log_alpha.value < -0.3


@pytest.mark.parametrize(("given", "expected"), [("auto", 1.0), ("auto_0.1", 0.1), (0.3, 0.3), (0, 0.0)])
def test_where_the_temperature_begins(given: Any, expected: float) -> None:
    model = quick_sac(ent_coef=given)
    assert model.policy.nets.log_alpha.value.exp().item() == pytest.approx(expected)
    model.learn(30)
    held = model.policy.nets.log_alpha.value.exp().item() == pytest.approx(expected)
    assert held is not isinstance(given, str)
    assert torch.isfinite(model.learner.flat).all()


def test_log_keys(tmp_path: Path) -> None:
    for ent_coef, missing in (("auto", set()), (0.1, {"train/ent_coef_loss"})):
        model = quick_sac(ent_coef=ent_coef)
        logger = configure(str(tmp_path), ["csv"])
        model.set_logger(logger)
        model.learn(60)
        logger.close()
        header = set((tmp_path / "progress.csv").read_text().splitlines()[0].split(","))
        wanted = {f"train/{name}" for name in ("actor_loss", "critic_loss", "ent_coef", "ent_coef_loss", "n_updates")}
        assert wanted - header == missing
        assert "rollout/exploration_rate" not in header


# ---- everything together
CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "image": (lambda: Reach("image"), "CnnPolicy", {"features_extractor_kwargs": SMALL_CNN}),
    "image shared": (
        lambda: Reach("hwc"), "CnnPolicy", {"features_extractor_kwargs": SMALL_CNN, "share_features_extractor": True},
    ),
    "dict": (lambda: Reach("dict"), "MultiInputPolicy", {"net_arch": {"pi": [8], "qf": [8, 4]}}),
    "critics": (lambda: Reach("matrix"), "MlpPolicy", {"net_arch": [], "n_critics": 3, "layer_norm": True}),
    "one critic": (lambda: Reach("multi binary"), "MlpPolicy", {"net_arch": [8], "n_critics": 1, "activation_fn": nn.Tanh}),
    "choices": (lambda: Tiny("dict", start=2), "MultiInputPolicy", {"net_arch": [8]}),
    "choices from an image": (lambda: Tiny("image"), "CnnPolicy", {"features_extractor_kwargs": SMALL_CNN}),
}  # fmt: skip


@SLOW
@pytest.mark.parametrize("count", a_few([1, 3], 1))
@pytest.mark.parametrize("name", CASES)
def test_observations_nets_and_switches(name: str, count: int, tmp_path: Path) -> None:
    make, policy, kwargs = CASES[name]
    settings: dict[str, Any] = {"n_steps": 3, "prioritized_replay": True, "gradient_steps": -1} if count == 3 else {}
    model = quick_sac(lanes(count, make), policy, policy_kwargs=kwargs, **settings)
    before = model.learner.flat.clone()
    model.learn(30)
    assert torch.isfinite(model.learner.flat).all()
    moved = (model.learner.flat != before).float().mean()
    assert moved > 0.5
    model.save(tmp_path / "m")
    loaded = SAC.load(tmp_path / "m", env=lanes(count, make))
    observation = make().reset(seed=1)[0]
    mine, theirs = (one.predict(observation, deterministic=True)[0] for one in (model, loaded))
    assert np.array_equal(mine, theirs)
    assert torch.equal(loaded.learner.flat, model.learner.flat)
    assert torch.equal(loaded.learner.flat_target, model.learner.flat_target)
    loaded.learn(20, reset_num_timesteps=False)


def test_shared_features_learn_from_the_critics_alone() -> None:
    kwargs = {"features_extractor_kwargs": SMALL_CNN, "share_features_extractor": True}
    model = quick_sac(Reach("image"), "CnnPolicy", policy_kwargs=kwargs)
    assert model.policy.nets.actor.features is None
    names = [name for name, _ in model.policy.nets.named_parameters()]
    assert sum("features" in name for name in names) == sum("critics.features" in name for name in names) > 0


@pytest.mark.traced
def test_it_learns_where_to_go() -> None:
    settings = {"learning_rate": 5e-3, "batch_size": 32, "ent_coef": 0.01, "gamma": 0.5}
    model = quick_sac(Reach(length=20), **settings, policy_kwargs={"net_arch": [32]}).learn(500)
    mean: Any = evaluate_policy(model, Reach(length=20), 3)[0]
    assert mean / 20 > -0.35  # uniform actions give -1.67 a step
    choices = quick_sac(Tiny(length=20), **settings, policy_kwargs={"net_arch": [32]}).learn(300)
    mean = evaluate_policy(choices, Tiny(length=20), 3)[0]
    assert mean > 19


# ---- what is refused
REFUSED: dict[str, list[Any]] = {
    "ent_coef": ["aut", "auto_", "auto_0", "auto_x", "auto_-1", "auto_inf", -0.1, math.nan, None, True, []],
    "target_entropy": ["aut", math.nan, math.inf, None, True, []],
    "tau": [-0.1, 1.1, None],
    "target_update_interval": [0, 1.5, None],
    "batch_size": [0, -1, "x"],
    "n_steps": [0, 0.5],
    "gamma": [-0.1, 2],
    "buffer_size": [0, None],
    "prioritized_replay": ["yes", {"alfa": 1}],
    "policy_kwargs": [
        {"n_critics": 0}, {"n_critics": 1.5}, {"net_arch": {"pi": [8]}}, {"net_arch": {"pi": [8], "vf": [8]}},
        {"net_arch": 64}, {"net_arch": [0]}, {"share_features_extractor": 1}, {"activation_fn": "relu"}, {"config": 1},
        {"layer_norm": "yes"}, {"n_critic": 2}, {"log_std_init": "x"}, {"use_sde": True},
    ],
}  # fmt: skip


def test_a_wrong_width_is_named_with_its_net() -> None:
    with pytest.raises(
        ConfigurationError, match=re.escape("policy_kwargs['net_arch']['qf'] entry must be an integer >= 1, got 0")
    ):
        quick_sac(policy_kwargs={"net_arch": {"pi": [8], "qf": [0]}})


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values])
def test_values_that_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        quick_sac(**{name: value})
    message = str(caught.value)
    assert (next(iter(value)) if isinstance(value, dict) and value else name) in message
    assert any(word in message for word in ("must be", "allowed", "give", "takes"))


@pytest.mark.parametrize("name", ["rollout_buffer_class", "replay_buffer_kwargs", "optimize_memory_usage"])
def test_keywords_of_stable_baselines3_without_a_meaning(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name} must be unset for SAC, got None: .*\. Leave it out"):
        quick_sac(**{name: None})


def test_combinations_that_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"target_entropy must be 'auto' with the fixed ent_coef=0.2, got -1.0"
    ):
        quick_sac(ent_coef=0.2, target_entropy=-1.0)
    with pytest.raises(ConfigurationError, match="action_mask must be None for continuous actions"):
        quick_sac(action_mask="info")
    with pytest.raises(ConfigurationError, match="subclass of SACPolicy"):
        quick_sac(policy="MlpLstmPolicy")
    with pytest.raises(ConfigurationError, match="must be one image .* for CnnPolicy"):
        quick_sac(policy="CnnPolicy")
    assert issubclass(SACPolicy, nn.Module)


class Acts(Tiny):
    def __init__(self, space: Any) -> None:
        super().__init__()
        self.action_space = space


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.MultiDiscrete([2, 3]), "the action space of SAC must be Box"),
        (spaces.MultiBinary(3), "the action space of SAC must be Box"),
        (spaces.Box(-np.inf, np.inf, (2,)), "must be finite float32 numbers"),
        (spaces.Box(0, 3, (2,), np.int64), "For integers use MultiDiscrete"),
    ],
)
def test_action_spaces_that_are_refused(space: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        quick_sac(Acts(space))


@pytest.mark.parametrize("algorithm", [DQN, PQN])
def test_q_agents_refuse_a_box(algorithm: Any) -> None:
    with pytest.raises(SpaceError, match="of a Q-agent must be Discrete"):
        algorithm("MlpPolicy", Reach(), device="cpu")


def test_pendulum_from_its_id_and_from_a_stable_baselines3_env() -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=20, buffer_size=100, batch_size=4, seed=0, device="cpu")
    assert model.learn(25)._n_updates == 5
    assert StreamOptions() == model.stream.options  # type: ignore[union-attr]  # there is one
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="a peer, installed by the bench extra")
    model.set_env(vec_env.DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    assert model.learn(30, reset_num_timesteps=False)._n_updates == 35


def test_a_fixed_temperature_is_changed_by_load_and_survives_resets(tmp_path: Path) -> None:
    model: Any = quick_sac(ent_coef=0.2, resets=20)
    model.save(tmp_path / "model.zip")
    assert float(SAC.load(tmp_path / "model.zip", ent_coef=0.01).policy.nets.log_alpha.value.exp()) == pytest.approx(
        0.01
    )
    model.ent_coef = 0.05
    model.learn(60)
    assert model._n_updates > 20
    assert float(model.policy.nets.log_alpha.value.exp()) == pytest.approx(0.05)
    with pytest.raises(
        ConfigurationError, match=r"ent_coef must stay a fixed number, or a learned one, got 0.05 and then 'auto'"
    ):
        model.ent_coef = "auto"


def test_a_file_is_not_called_damaged_where_the_settings_of_load_do_not_fit(tmp_path: Path) -> None:
    quick_sac(ent_coef="auto").learn(60).save(tmp_path / "model.zip")
    with pytest.raises(
        CheckpointError, match=r"'learner' .* Load it without ent_coef; if that fails, too, it is damaged"
    ):
        SAC.load(tmp_path / "model.zip", ent_coef=0.1)


@pytest.mark.parametrize("train_freq", [(1, "episode"), (10, "episode"), 1_000])
def test_noise_of_state_dependent_exploration_is_drawn_at_the_given_rate(
    train_freq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws, draw = [0], SACPolicy.draw

    def counted(*arguments: Any) -> Any:
        draws[0] += 1
        return draw(*arguments)

    monkeypatch.setattr(SACPolicy, "draw", counted)
    settings: dict[str, Any] = {"use_sde": True, "use_sde_at_warmup": True, "sde_sample_freq": 16, "gradient_steps": 0}
    quick_sac(train_freq=train_freq, **settings).learn(160)
    assert 10 <= draws[0] <= 13  # also at the start of acting and of updates
