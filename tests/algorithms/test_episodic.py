"""REINFORCE and VPG: complete episodes alone, each step once, every space, masks, the verbs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sb_dqn.algorithms import REINFORCE, VPG
from sb_dqn.errors import ConfigurationError
from sb_dqn.logger import configure
from tests.algorithms.test_actor_critic import ACTIONS, ENVS, Acts, Clock
from tests.marks import SLOW
from tests.masked_toys import MaskedGame
from tests.tiny import Tiny, lanes, small_policy

pytestmark = pytest.mark.usefixtures("eagerly")

QUICK: dict[str, Any] = {"episodes_per_update": 3, "policy_kwargs": {"net_arch": [8]}, "seed": 0, "device": "cpu"}
ALL: dict[str, Any] = {
    "REINFORCE": REINFORCE,
    "REINFORCE, normalized": partial(REINFORCE, normalize_returns=True, ent_coef=0.01),
    "VPG, value": partial(VPG, gae_lambda=0.8),
    "VPG, mean return": partial(VPG, baseline="mean_return"),
    "VPG, step mean": partial(VPG, baseline="step_mean", normalize_advantage=False),
}
EACH = pytest.mark.parametrize("name", ALL)


def quick(name: str = "VPG, value", env: Any = None, policy: str = "MlpPolicy", **kwargs: Any) -> Any:
    return ALL[name](policy, lanes(2) if env is None else env, **{**QUICK, **kwargs})


def parameters(model: Any) -> torch.Tensor:
    found: torch.Tensor = model.learner.flat.clone()
    return found


# ---- what they learn from


@pytest.mark.parametrize("name", ["REINFORCE", "VPG, value"])
@pytest.mark.parametrize("kind", ENVS)
def test_every_env(name: str, kind: str) -> None:
    policy, kwargs = small_policy(kind)
    kwargs["squash_output"] = kind == "squashed"
    mask = "info" if kind in ("masks", "branches") else None
    model = quick(name, ENVS[kind](), policy, policy_kwargs=kwargs, action_mask=mask)
    before, seen = parameters(model), set()
    step = model.gradient_step

    def look() -> Any:
        view, ring = model.rollout.view, model.rollout.ring
        last = ring.last.view(ring.rows, -1)
        there = view.weight > 0
        for lane, row, return_ in zip(
            view.lane[there].tolist(), view.row[there].tolist(), view.return_[there], strict=True
        ):
            assert (lane, row) not in seen
            assert not last[row % ring.rows, lane]
            assert bool(return_.isfinite())
            seen.add((lane, row))
        assert int(there.sum()) == sum(end - begin for _, begin, end in model.rollout.finished)
        return step()

    model.gradient_step = look
    model.learn(60)
    assert len(seen) > 30
    assert model._n_updates >= 2
    assert not torch.equal(parameters(model), before)
    assert bool(torch.isfinite(model.learner.flat).all())


@pytest.mark.parametrize("name", ["REINFORCE", "VPG, mean return", "VPG, step mean"])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_without_a_critic_a_time_limit_ends_the_return(name: str, mode: AutoresetMode) -> None:
    model = quick(name, SyncVectorEnv([Clock], autoreset_mode=mode), gamma=0.9, episodes_per_update=2).learn(6)
    view = model.rollout.view
    assert view.return_[view.weight > 0].tolist() == pytest.approx([2.71, 1.9, 1.0] * 2)
    baselines = {
        "REINFORCE": [0.0] * 6, "VPG, mean return": [1.87] * 6, "VPG, step mean": [2.71, 1.9, 1.0] * 2,
    }  # fmt: skip
    assert view.extra["value"][view.weight > 0].tolist() == pytest.approx(baselines[name])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_time_limit_is_bootstrapped_from_the_true_last_observation(mode: AutoresetMode) -> None:
    """The value is made the observation itself: 3 at the end, and 0 at the reset row that must not be taken for it."""
    env = SyncVectorEnv([Clock], autoreset_mode=mode)
    model = quick(env=env, gamma=0.5, gae_lambda=1.0, policy_kwargs={"net_arch": []}, episodes_per_update=1)
    with torch.no_grad():
        model.policy.net.value_head.weight.fill_(1.0)
        model.policy.net.value_head.bias.zero_()
    model.learn(3)
    view = model.rollout.view
    found = view.return_[view.weight > 0].tolist()
    assert found == pytest.approx([1 + 0.5 * (1 + 0.5 * (1 + 0.5 * 3)), 1 + 0.5 * (1 + 0.5 * 3), 1 + 0.5 * 3])


def test_updates_wait_for_whole_episodes() -> None:
    model = quick("REINFORCE", lanes(1, partial(Tiny, length=5)), episodes_per_update=4)
    assert model.learn(19)._n_updates == 0
    assert (
        model.learn(4, reset_num_timesteps=False)._n_updates == 0
    )  # three are complete; what was interrupted does not count
    assert model.learn(5, reset_num_timesteps=False)._n_updates == 1
    assert int((model.rollout.view.weight > 0).sum()) == 20
    model = quick("REINFORCE", lanes(4, partial(Tiny, length=5)), episodes_per_update=3).learn(20)
    assert model._n_updates == 1  # four end in the same tick, all are used
    assert int((model.rollout.view.weight > 0).sum()) == 20


@EACH
@pytest.mark.parametrize("length", [1, 2])
def test_short_episodes_never_give_nan(name: str, length: int) -> None:
    count = 2 if "step mean" in name else 1
    model = quick(name, lanes(1, partial(Tiny, length=length)), episodes_per_update=count).learn(12)
    assert model._n_updates >= 3
    assert bool(torch.isfinite(model.learner.flat).all())
    model.learn(3)  # looks at the flag of finite gradients, and does not raise


def test_a_critic_is_learned_only_where_there_is_one() -> None:
    for name in ALL:
        model = quick(name)
        before = {key: x.clone() for key, x in model.policy.net.value_tower.state_dict().items()}
        model.learn(60)
        moved = any(not torch.equal(x, before[key]) for key, x in model.policy.net.value_tower.state_dict().items())
        assert moved == (name == "VPG, value")


@pytest.mark.traced
@pytest.mark.parametrize("name", ["REINFORCE", "VPG, value"])
def test_the_better_action_is_learned(name: str) -> None:
    env = lanes(8, partial(Tiny, length=5))
    model = quick(name, env, policy_kwargs={"net_arch": [16]}, learning_rate=0.01, episodes_per_update=16).learn(6_000)
    with torch.no_grad():
        mode = model.policy.net.policy({"obs": torch.randn(64, 2)}).mode()
    assert float((mode == 0).float().mean()) > 0.95


@SLOW
@pytest.mark.traced
def test_traced_and_eager_runs_are_the_same() -> None:
    env = [partial(Tiny, length=3), partial(Tiny, length=90)]  # batches of two sizes
    traced, eager = (quick(env=env, episodes_per_update=4) for _ in range(2))
    assert traced.mode == "traced"
    eager.mode = "eager"
    eager.attach(eager.stream)
    assert torch.allclose(parameters(traced.learn(300)), parameters(eager.learn(300)), rtol=1e-4, atol=1e-5)
    assert len(traced.update_runner.functions) == 2


# ---- spaces and verbs


@pytest.mark.parametrize(
    ("name", "kind"), [*(("VPG, value", kind) for kind in (*ACTIONS, "squashed box")), ("REINFORCE", "box")]
)
def test_every_action_space(name: str, kind: str, tmp_path: Path) -> None:
    kwargs = {"net_arch": [8], "squash_output": kind == "squashed box"}
    space = ACTIONS[kind.replace("squashed ", "")]
    model = quick(name, lanes(2, partial(Acts, space)), policy_kwargs=kwargs).learn(
        40
    )  # the env refuses what is not in it
    observations = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    greedy = model.predict(observations, deterministic=True)[0]
    assert all(space.contains(action) for action in (*greedy, *model.predict(observations)[0]))
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model", lanes(2, partial(Acts, space)), device="cpu")
    assert np.array_equal(again.predict(observations, deterministic=True)[0], greedy)
    again.learn(40, reset_num_timesteps=False)
    assert again._n_updates > model._n_updates


@pytest.mark.parametrize("name", ["REINFORCE", "VPG, value"])
def test_illegal_actions_are_never_taken(name: str) -> None:
    games = [MaskedGame(lane, "uneven") for lane in range(2)]
    quick(name, [partial(lambda game: game, game) for game in games], action_mask="info", learning_rate=0.05).learn(200)
    for game in games:
        for frame, action in game.played.items():
            assert all(
                mask[a] for mask, a in zip(np.atleast_2d(game.wanted[frame]), np.atleast_1d(action), strict=True)
            )


@EACH
def test_normalizers(name: str) -> None:
    model = quick(name, normalize_observations=True, normalize_rewards=True)
    step = model.gradient_step

    def look() -> Any:
        """Episodes that began since the last update: log-probabilities computed anew equal those recorded."""
        batch = model.normalizer.batch(model.rollout.sample_from(model.rollout.draw(torch.Generator())))
        with torch.no_grad():
            logp = model.policy.net.policy(batch.obs, batch.mask).log_prob(batch.action)
        there = batch.weight > 0
        if model._n_updates == 0:
            torch.testing.assert_close(logp[there], batch.extra["log_prob"][there])
        return step()

    model.gradient_step = look
    model.learn(60)
    assert model._n_updates >= 3


@EACH
def test_the_log(name: str) -> None:
    records: list[dict[str, Any]] = []
    model = quick(name)
    logger = configure(None, [])
    logger.dump = lambda step=0: records.append(dict(logger.name_to_value))  # type: ignore[method-assign]
    model.set_logger(logger)
    model.learn(80, log_interval=2, callback=lambda locals_, globals_: True)
    keys = {"loss", "grad_norm", "policy_loss", "entropy_loss", "n_updates"}
    critic = {"value_loss", "explained_variance"}
    found = {key.removeprefix("train/") for key in records[-1]}
    assert keys <= found
    assert critic & found == (critic if name == "VPG, value" else set())


def test_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    quick("REINFORCE", verbose=1)
    assert "an update after every 3 episodes over 2 lanes" in capsys.readouterr().out


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *(
        (name, {"episodes_per_update": value}, "episodes_per_update")
        for name in ALL
        for value in (0, -1, 1.5, None, "2")
    ),
    ("REINFORCE", {"normalize_returns": 1}, "normalize_returns must be .* got 1"),
    ("REINFORCE", {"normalize_return": True}, "Did you mean 'normalize_returns'"),
    ("REINFORCE", {"baseline": "value"}, "must be among .* got 'baseline'"),
    ("REINFORCE", {"gae_lambda": 0.9}, "must be among .* got 'gae_lambda'"),
    ("REINFORCE", {"ent_coef": -0.1}, "ent_coef must be .* got -0.1"),
    ("REINFORCE", {"gamma": 1.1}, "gamma must be .* got 1.1"),
    ("REINFORCE", {"learning_rate": 0}, "learning_rate"),
    ("REINFORCE", {"policy": "MlpPolici"}, "Did you mean 'MlpPolicy'"),
    ("VPG, value", {"baseline": "mean"}, "baseline must be .* got 'mean'"),
    ("VPG, value", {"baseline": None}, "baseline must be .* got None"),
    ("VPG, value", {"gae_lambda": -0.1}, "gae_lambda must be .* got -0.1"),
    ("VPG, value", {"vf_coef": float("nan")}, "vf_coef"),
    ("VPG, value", {"normalize_advantage": "yes"}, "normalize_advantage"),
    ("VPG, mean return", {"gae_lambda": 0.9}, "gae_lambda=0.9.*Remove them"),
    ("VPG, step mean", {"vf_coef": 0.1}, "vf_coef=0.1.*Remove them"),
    ("VPG, step mean", {"episodes_per_update": 1}, "episodes_per_update must be >= 2"),
]


@pytest.mark.parametrize(("name", "wrong", "message"), REFUSED)
def test_refusals(name: str, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(name, **wrong)


def test_a_space_that_nobody_acts_in() -> None:
    with pytest.raises(Exception, match="must be Discrete"):
        quick(env=lanes(1, partial(Acts, spaces.Text(3))))


class Long(gymnasium.Env[Any, Any]):
    """One episode of 600 steps, more than the buffer has room for at first."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(2, np.float32), 1.0, self.t >= 600, False, {}


def test_an_assigned_gamma_stays_when_the_buffer_grows() -> None:
    model = REINFORCE("MlpPolicy", Long(), episodes_per_update=1, gamma=0.99, policy_kwargs={"net_arch": [4]}, seed=0)
    model.gamma = 0.0
    model.learn(650)
    assert model.rollout.view.return_[:3].tolist() == [1.0, 1.0, 1.0]
