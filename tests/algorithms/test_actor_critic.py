"""A2C and PPO: what they learn from, every space, masks, the verbs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

from sb_dqn.algorithms import A2C, PPO, REINFORCE, VPG
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.errors import ConfigurationError
from sb_dqn.logger import configure
from sb_dqn.nn.parameters.optimizers import RMSpropTFLike
from tests.marks import SLOW, a_few
from tests.masked_toys import MaskedGame
from tests.tiny import OBSERVATIONS, SMALL_CNN, Tiny, lanes, small_policy

pytestmark = pytest.mark.usefixtures("eagerly")

COMMON: dict[str, Any] = {"n_steps": 5, "policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu"}
QUICK: dict[type[ActorCriticAlgorithm], dict[str, Any]] = {
    A2C: COMMON,
    PPO: {**COMMON, "batch_size": 8, "n_epochs": 2},
}
BOTH = pytest.mark.parametrize("algorithm", [A2C, PPO])


def quick(algorithm: Any = PPO, env: Any = None, policy: str = "MlpPolicy", **kwargs: Any) -> Any:
    return algorithm(policy, lanes(2) if env is None else env, **{**QUICK[algorithm], **kwargs})


class Acts(gymnasium.Env[Any, Any]):
    """Takes actions of any space, holds them to it, and rewards large ones."""

    def __init__(self, actions: spaces.Space[Any], length: int = 5, truncates: bool = False) -> None:
        self.observation_space = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space, self.length, self.truncates, self.t = actions, length, truncates, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def _seen(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.t += 1
        over = self.t >= self.length
        return self._seen(), float(np.mean(action)), over and not self.truncates, over and self.truncates, {}


ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=-1),
    "multi discrete": spaces.MultiDiscrete([2, 4, 3], start=[1, 0, -1]),
    "multi binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([-1.0, 0.5], np.float32)),
    "box of two axes": spaces.Box(-0.1, 0.1, (2, 2), np.float32),
}


# ---- what they learn from


class Tape(PPO):
    """Compares, before the first update of every rollout, all samples with a naive reading of the ring."""

    compared = 0

    def before_updates(self) -> None:
        full = self.rollout.is_full
        super().before_updates()
        if full:
            self.compare()

    def said(self, lane: int, row: int) -> tuple[float, Any]:
        """Value and distribution at a row, by the net that is about to be updated, which is the one that acted."""
        obs, mask = self.rollout.view.observe(torch.tensor([lane]), torch.tensor([row]))
        with torch.no_grad():
            policy, value, _ = self.policy.net(obs, mask)
        return float(value), policy

    def compare(self) -> None:
        rollout: Any = self.rollout
        ring = rollout.ring
        batch = rollout.sample_from(torch.arange(rollout.n_steps * ring.num_lanes))
        assert batch.extra is not None
        found = {tuple(place): i for i, place in enumerate(batch.place.T.tolist()) if batch.weight[i] > 0}
        flags = {name: getattr(ring, name).view(ring.rows, -1).tolist() for name in ("reward", "terminal", "last")}
        seen = set()
        for lane in range(ring.num_lanes):
            advantage, cut = 0.0, True
            for row in range(int(ring.cursor[lane]) - 2, int(rollout.start[lane]) - 1, -1):
                at, arrival = row % ring.rows, (row + 1) % ring.rows
                if flags["last"][at][lane]:
                    advantage, cut = 0.0, True
                    continue
                value, policy = self.said(lane, row)
                next_value = 0.0 if flags["terminal"][arrival][lane] else self.said(lane, row + 1)[0]
                cut = cut or flags["terminal"][arrival][lane] or flags["last"][arrival][lane]
                delta = flags["reward"][arrival][lane] + 0.9 * next_value - value
                advantage, cut = delta + (0.0 if cut else 0.9 * 0.8 * advantage), False
                i = found[lane, row]
                seen.add((lane, row))
                assert float(batch.extra["value"][i]) == pytest.approx(value, abs=1e-5)
                assert float(batch.return_[i] - batch.extra["value"][i]) == pytest.approx(advantage, rel=1e-4, abs=1e-4)
                sample = batch.extra.get("u", batch.action)
                logp = float(policy.log_prob(sample[i : i + 1]).detach())
                assert float(batch.extra["log_prob"][i]) == pytest.approx(logp, abs=1e-4)
        assert seen == found.keys()
        self.compared += len(found)


ENVS: dict[str, Callable[[], Any]] = {
    "vector": lambda: lanes(3, partial(Tiny, length=4)),
    "truncated": lambda: lanes(2, partial(Tiny, length=3, truncates=True)),
    "unequal": lambda: [partial(Tiny, length=2), partial(Tiny, length=7, truncates=True)],
    "same step": lambda: SyncVectorEnv(
        [partial(Tiny, length=2, truncates=True), partial(Tiny, length=3)], autoreset_mode=AutoresetMode.SAME_STEP
    ),
    "dict": lambda: lanes(2, partial(Tiny, "dict")),
    "image": lambda: lanes(2, partial(Tiny, "image")),
    "masks": lambda: [partial(MaskedGame, lane, "discrete") for lane in range(2)],
    "branches": lambda: [partial(MaskedGame, lane, "uneven") for lane in range(2)],
    "box": lambda: lanes(2, partial(Acts, ACTIONS["box"], truncates=True)),
    "squashed": lambda: lanes(2, partial(Acts, ACTIONS["box of two axes"])),
}


@pytest.mark.parametrize("kind", ENVS)
def test_samples_are_of_the_weights_that_acted(kind: str) -> None:
    policy, kwargs = small_policy(kind)
    if kind == "squashed":
        kwargs["squash_output"] = True
    model = Tape(
        policy, ENVS[kind](), n_steps=6, batch_size=5, n_epochs=2, gamma=0.9, gae_lambda=0.8, learning_rate=0.01, seed=0,
        device="cpu", policy_kwargs=kwargs, action_mask="info" if kind in ("masks", "branches") else None,
    )  # fmt: skip
    before = model.learner.flat.clone()
    model.learn(70)
    assert model.compared > 40
    assert not torch.equal(model.learner.flat, before)
    assert bool(torch.isfinite(model.learner.flat).all())


class Clock(gymnasium.Env[Any, Any]):
    """One step of reward 1 after another until a time limit; the observation after n steps is n."""

    observation_space = spaces.Box(0, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, False, self.t == 3, {}


@BOTH
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_time_limit_is_bootstrapped_from_the_true_last_observation(algorithm: Any, mode: AutoresetMode) -> None:
    """The value is made the observation itself: 3 at the end, and 0 at the reset row that must not be taken for it."""
    env = SyncVectorEnv([Clock], autoreset_mode=mode)
    model = quick(
        algorithm, env, n_steps=3, gamma=0.5, gae_lambda=1.0, policy_kwargs={"net_arch": []}, learning_rate=1e-9
    )
    with torch.no_grad():
        model.policy.net.value_head.weight.fill_(1.0)
        model.policy.net.value_head.bias.zero_()
    model.learn(3)
    view = model.rollout.view
    found = view.return_[view.weight > 0].tolist()
    assert found == pytest.approx([1 + 0.5 * (1 + 0.5 * (1 + 0.5 * 3)), 1 + 0.5 * (1 + 0.5 * 3), 1 + 0.5 * 3])
    assert found != pytest.approx([1.75, 1.5, 1.0])  # a time limit taken for an end


@SLOW
@pytest.mark.traced
@pytest.mark.parametrize(
    ("algorithm", "kwargs"),
    a_few([(A2C, {"learning_rate": 0.01}), (PPO, {"learning_rate": 0.003, "n_epochs": 4})], A2C),
)
def test_the_better_action_is_learned(algorithm: Any, kwargs: dict[str, Any]) -> None:
    model = quick(algorithm, lanes(8, partial(Tiny, length=5)), policy_kwargs={"net_arch": [16]}, **kwargs)
    model.learn(3_000)
    with torch.no_grad():
        mode = model.policy.net.policy({"obs": torch.randn(64, 2)}).mode()
    assert float((mode == 0).float().mean()) > 0.95


# ---- spaces


@BOTH
@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_every_observation(algorithm: Any, kind: str) -> None:
    policy, kwargs = small_policy(kind)
    model = quick(algorithm, lanes(2, partial(Tiny, kind, start=5)), policy, policy_kwargs=kwargs)
    before = model.learner.flat.clone()
    model.learn(20)
    assert not torch.equal(model.learner.flat, before)


@BOTH
@pytest.mark.parametrize("kind", [*ACTIONS, "squashed box"])
def test_every_action_space(algorithm: Any, kind: str, tmp_path: Path) -> None:
    kwargs = {"net_arch": [8], "squash_output": kind == "squashed box", "log_std_init": 1.0}
    kind = kind.replace("squashed ", "")
    model = quick(algorithm, lanes(2, partial(Acts, ACTIONS[kind])), policy_kwargs=kwargs)
    before = model.learner.flat.clone()
    model.learn(40)  # the env refuses an action that is not in its space
    assert not torch.equal(model.learner.flat, before)
    observations = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    greedy, _ = model.predict(observations, deterministic=True)
    assert np.array_equal(greedy, model.predict(observations, deterministic=True)[0])
    drawn = [model.predict(observations)[0] for _ in range(2)]
    assert not np.array_equal(*drawn)
    for action in (*greedy, *drawn[0]):
        assert ACTIONS[kind].contains(action)
    model.save(tmp_path / "model")
    again = algorithm.load(tmp_path / "model", device="cpu")
    assert np.array_equal(again.predict(observations, deterministic=True)[0], greedy)
    assert np.array_equal(again.predict(observations)[0], model.predict(observations)[0])  # random streams go on


@SLOW
@BOTH
@pytest.mark.parametrize("space", a_few(["discrete", "uneven", "binary"], "uneven"))
def test_illegal_actions_are_never_taken(algorithm: Any, space: str) -> None:
    games = [MaskedGame(lane, space) for lane in range(2)]
    model = quick(algorithm, [partial(_itself, game) for game in games], action_mask="info", learning_rate=0.05)
    model.learn(250)
    for game in games:
        assert len(game.played) > 80
        for frame, action in game.played.items():
            wanted = game.wanted[frame]
            assert all(mask[a] for mask, a in zip(np.atleast_2d(wanted), np.atleast_1d(action), strict=True))


def _itself(game: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return game


@BOTH
def test_predict_draws_legal_actions(algorithm: Any) -> None:
    model = quick(algorithm, lanes(2, partial(Acts, spaces.Discrete(4))))
    observations = np.zeros((400, 3), np.float32)
    mask = np.array([False, True, False, True])
    for deterministic in (False, True):
        actions, _ = model.predict(observations, deterministic=deterministic, action_masks=mask)
        assert set(actions) <= {1, 3}
    assert set(model.predict(observations, action_masks=mask)[0]) == {1, 3}


# ---- the loop and its log


@BOTH
def test_the_log(algorithm: Any) -> None:
    records: list[dict[str, Any]] = []
    model = quick(algorithm, lanes(2, partial(Acts, ACTIONS["box"])))
    logger = configure(None, [])
    logger.dump = lambda step=0: records.append(dict(logger.name_to_value))  # type: ignore[method-assign]
    model.set_logger(logger)
    model.learn(60, log_interval=2, callback=lambda locals_, globals_: True)
    keys = {
        A2C: {"policy_loss"},
        PPO: {"policy_gradient_loss", "approx_kl", "clip_fraction", "clip_range"},
    }[algorithm] | {"loss", "grad_norm", "value_loss", "entropy_loss", "explained_variance", "std", "n_updates"}
    assert len(records) >= 3
    assert {f"train/{key}" for key in keys} <= records[-1].keys()
    assert "rollout/exploration_rate" not in records[-1]
    assert "train/clip_range_vf" not in records[-1]


def test_as_many_updates_as_said() -> None:
    model = quick(A2C, lanes(2, partial(Tiny, length=10_000))).learn(40)  # 20 ticks of 2 lanes, 4 rollouts
    assert model._n_updates == 4
    model = quick(PPO, lanes(2, partial(Tiny, length=10_000))).learn(40)  # 2 epochs of 2 minibatches each
    assert model._n_updates == 4 * 2 * 2


def test_a_divergence_ends_the_updates() -> None:
    env = lanes(2, partial(Tiny, length=10_000))
    model = quick(PPO, env, target_kl=1e-12, n_epochs=50, learning_rate=0.1).learn(10)
    assert model._n_updates == 1  # of the first minibatch the policy that acted is known exactly
    assert quick(PPO, env, target_kl=1e12, n_epochs=5).learn(10)._n_updates == 5 * 2


@SLOW
@pytest.mark.traced
def test_a_clip_range_follows_its_schedule_in_traced_updates() -> None:
    model = quick(PPO, clip_range="linear 0.4", clip_range_vf=[(0, 0.5), (40, 0.1)], learning_rate=0.05)
    assert model.mode == "traced"
    seen = []
    step = model.gradient_step

    def look() -> Any:
        update = step()
        seen.append((float(model.objective.clip), float(update.reports[4])))
        return update

    model.gradient_step = look
    model.learn(40)
    assert [clip for clip, _ in seen] == sorted((clip for clip, _ in seen), reverse=True)
    assert seen[-1][0] < 0.1 < seen[0][0]
    assert seen[-1][1] > seen[0][1]  # the narrower the range, the more is clipped
    assert float(model.objective.clip_value) == pytest.approx(0.1, abs=0.1)


@BOTH
def test_low_precision(algorithm: Any) -> None:
    model = quick(algorithm, lanes(2, partial(Acts, ACTIONS["box"])), precision="bf16")
    before = model.learner.flat.clone()
    model.learn(40)
    assert not torch.equal(model.learner.flat, before)
    assert model.learner.flat.dtype == torch.float32
    assert model.learner.online.action_head.log_std is model.policy.net.action_head.log_std


@BOTH
def test_learning_goes_on_after_a_load(algorithm: Any, tmp_path: Path) -> None:
    model = quick(algorithm).learn(20)
    model.save(tmp_path / "model")
    again = algorithm.load(tmp_path / "model", env=lanes(2), device="cpu")
    state, saved = (m.learner.optimizer.state_dict()["state"][0] for m in (again, model))
    assert all(torch.equal(torch.as_tensor(state[key]), torch.as_tensor(saved[key])) for key in saved)
    again.learn(20, reset_num_timesteps=False)
    assert again.num_timesteps >= 40


# ---- nets and optimizers


def test_the_optimizer_is_a2cs_own_unless_said_otherwise() -> None:
    assert isinstance(quick(A2C).learner.optimizer, torch.optim.RMSprop)
    assert quick(A2C, rms_prop_eps=0.5).learner.optimizer.param_groups[0]["eps"] == 0.5
    assert isinstance(quick(A2C, use_rms_prop=False).learner.optimizer, torch.optim.Adam)
    named = quick(A2C, policy_kwargs={"optimizer_class": "RMSpropTFLike"}).learner.optimizer
    assert isinstance(named, RMSpropTFLike)
    assert named.param_groups[0]["eps"] == 1e-8
    adam = quick(PPO, policy_kwargs={"optimizer_kwargs": {"betas": (0.5, 0.9)}}).learner.optimizer
    assert (adam.param_groups[0]["eps"], adam.param_groups[0]["betas"]) == (1e-5, (0.5, 0.9))


def test_towers_heads_and_their_first_weights() -> None:
    net = quick(PPO, policy_kwargs={"net_arch": {"pi": [16, 8], "vf": [32]}, "activation_fn": nn.ReLU}).policy.net
    assert [linear.out_features for linear in net.policy_tower.linears] == [16, 8]
    assert [linear.out_features for linear in net.value_tower.linears] == [32]
    assert type(net.policy_tower.after[0]) is nn.ReLU
    weight = net.policy_tower.linears[1].weight
    torch.testing.assert_close(weight @ weight.T, 2.0 * torch.eye(8), atol=1e-5, rtol=0)
    weight = net.action_head.outputs.weight
    torch.testing.assert_close(weight @ weight.T, 1e-4 * torch.eye(3), atol=1e-7, rtol=0)
    assert float(net.value_head.weight.detach().norm()) == pytest.approx(1.0, abs=1e-5)
    assert float(net.value_head.bias.detach()) == 0.0
    plain = quick(PPO, policy_kwargs={"ortho_init": False}).policy.net
    assert plain.value_head.bias.detach().abs().sum() > 0
    assert type(plain.policy_tower.after[0]) is nn.Tanh


def test_two_features_extractors() -> None:
    image: dict[str, Any] = {"env": lanes(2, partial(Tiny, "image")), "policy": "CnnPolicy"}
    kwargs: dict[str, Any] = {"features_extractor_kwargs": SMALL_CNN}
    shared = quick(PPO, **image, policy_kwargs=kwargs).policy.net
    apart = quick(PPO, **image, policy_kwargs={**kwargs, "share_features_extractor": False}).policy.net
    assert shared.value_features is None
    assert apart.value_features is not apart.features
    assert len(shared.policy_tower.linears) == 0
    assert shared.features.features_dim == SMALL_CNN["features_dim"]


def test_the_deviation_of_a_box() -> None:
    env = lanes(2, partial(Acts, ACTIONS["box of two axes"]))
    head = quick(PPO, env, policy_kwargs={"log_std_init": -2.0}).policy.net.action_head
    assert head.log_std.tolist() == [-2.0] * 4


@pytest.mark.parametrize(
    ("algorithm", "policy"), [*((each, "MlpPolicy") for each in (A2C, PPO, REINFORCE, VPG)), (PPO, "MlpLstmPolicy")]
)
def test_a_bit_has_one_output(algorithm: Any, policy: str) -> None:
    for actions, kwargs, outputs in (
        (spaces.MultiBinary(3), {}, 3),
        (spaces.MultiBinary([3]), {"binary_logits": 1}, 3),
        (spaces.MultiBinary(3), {"binary_logits": 2}, 6),
        (spaces.MultiDiscrete([2, 2, 2]), {}, 6),
    ):
        model = algorithm(policy, lanes(2, partial(Acts, actions)), seed=0, device="cpu", policy_kwargs=kwargs)
        assert model.policy.action_head.outputs.out_features == outputs


# ---- bad input

BAD: list[tuple[Any, dict[str, Any], str]] = [
    (PPO, {"clip_range": 0}, "clip_range must be a number > 0.* got 0"),
    (PPO, {"clip_range": None}, "clip_range must be .* got None"),
    (PPO, {"clip_range_vf": -1}, "clip_range_vf must be .* got -1"),
    (PPO, {"target_kl": 0}, "target_kl must be .* got 0"),
    (PPO, {"batch_size": 1}, "batch_size must be >= 2 with normalize_advantage=True"),
    (PPO, {"batch_size": 0}, "batch_size must be .* got 0"),
    (PPO, {"n_epochs": 0}, "n_epochs must be .* got 0"),
    (PPO, {"use_sde": True}, "use_sde must be False for discrete actions, got True"),
    (PPO, {"sde_sample_freq": -2}, "sde_sample_freq must be .* got -2"),
    (PPO, {"rollout_buffer_class": dict}, "rollout_buffer_class must be unset for PPO"),
    (PPO, {"cliprange": 0.1}, "Did you mean 'clip_range'"),
    (A2C, {"rms_prop_eps": -1}, "rms_prop_eps must be .* got -1"),
    (A2C, {"use_rms_prop": 1}, "use_rms_prop must be .* got 1"),
    (A2C, {"batch_size": 3}, "arguments of A2C must be .* got 'batch_size'"),
    (A2C, {"policy": "MlpPolicies"}, "subclass of ActorCriticPolicy.*Did you mean 'MlpPolicy'"),
    (A2C, {"policy_kwargs": {"net_arch": {"pi": [8], "qf": [8]}}}, "must be among .* got 'qf'"),
    (A2C, {"policy_kwargs": {"net_arch": {"pi": 8}}}, r"policy_kwargs\['net_arch'\]\['pi'\] must be a list of widths, got 8"),
    (A2C, {"policy_kwargs": {"log_std_init": "x"}}, "log_std_init"),
    (A2C, {"policy_kwargs": {"squash_output": True}}, "squash_output.* must be False for discrete actions, got True"),
    (A2C, {"policy_kwargs": {"ortho_init": 1}}, "ortho_init"),
    (A2C, {"policy_kwargs": {"binary_logits": 3}}, r"policy_kwargs\['binary_logits'\] must be .* got 3"),
    (A2C, {"policy_kwargs": {"use_sde": True}}, "must be among .* got 'use_sde'"),
    *[
        (algorithm, {name: value}, f"{name} must be .* got {value!r}")
        for algorithm in (A2C, PPO)
        for name, value in [
            ("ent_coef", -0.1), ("vf_coef", "x"), ("gamma", 1.1), ("gae_lambda", -0.1), ("n_steps", 0), ("seed", -1),
            ("max_grad_norm", 0), ("learning_rate", 0), ("normalize_advantage", None), ("precision", "fp16"),
        ]
    ],
]  # fmt: skip


@pytest.mark.parametrize(("algorithm", "kwargs", "message"), BAD)
def test_bad_input(algorithm: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(algorithm, **kwargs)
