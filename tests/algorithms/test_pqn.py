"""PQN: what it learns from, the loop by its tape, and the verbs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium import spaces
from torch import nn

from sb_dqn.algorithms import PQN
from sb_dqn.callbacks import CheckpointCallback
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.logger import configure
from sb_dqn.spaces import batch_observation
from sb_dqn.types import Update
from tests.algorithms.test_actor_critic import ENVS
from tests.algorithms.test_loop import Lines
from tests.marks import SLOW
from tests.masked_toys import MaskedGame
from tests.tiny import Tiny, lanes, small_policy

pytestmark = pytest.mark.usefixtures("eagerly")

QUICK: dict[str, Any] = {
    "n_steps": 5,
    "batch_size": 8,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [8]},
    "seed": 0,
    "device": "cpu",
}
OBS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)


def quick(env: Any = None, policy: Any = "MlpPolicy", **kwargs: Any) -> PQN:
    return PQN(policy, lanes(2) if env is None else env, **{**QUICK, **kwargs})


# ---- what it learns from


class Tape(PQN):
    """Compares, before the first update of every rollout, all samples with a naive reading of the ring."""

    compared = 0

    def before_updates(self) -> None:
        full = self.rollout.is_full
        super().before_updates()
        if full:
            self.compare()

    def worth(self, lane: int, row: int) -> float:
        """The best value at a row, by the net that is about to be updated, which is the one that acted."""
        obs, mask = self.rollout.view.observe(torch.tensor([lane]), torch.tensor([row]))
        with torch.no_grad():
            return float(self.policy.values(obs, mask).amax(-1).mean())

    def compare(self) -> None:
        rollout: Any = self.rollout
        ring = rollout.ring
        batch = rollout.sample_from(torch.arange(rollout.n_steps * ring.num_lanes))
        found = {
            tuple(place): float(batch.return_[i])
            for i, place in enumerate(batch.place.T.tolist())
            if batch.weight[i] > 0
        }
        flags = {name: getattr(ring, name).view(ring.rows, -1).tolist() for name in ("reward", "terminal", "last")}
        expected = {}
        for lane in range(ring.num_lanes):
            after, cut = 0.0, True
            for row in range(int(ring.cursor[lane]) - 2, int(rollout.start[lane]) - 1, -1):
                at, arrival = row % ring.rows, (row + 1) % ring.rows
                if flags["last"][at][lane]:
                    cut = True
                    continue
                terminal = flags["terminal"][arrival][lane]
                cut = cut or terminal
                v = self.worth(lane, row + 1)
                ahead = v if cut else 0.35 * v + 0.65 * after
                after = flags["reward"][arrival][lane] + (0.0 if terminal else 0.9 * ahead)
                expected[lane, row], cut = after, False
        assert found.keys() == expected.keys()
        for place, want in expected.items():
            assert found[place] == pytest.approx(want, rel=1e-4, abs=1e-4)
        self.compared += len(found)


@pytest.mark.parametrize("kind", [kind for kind in ENVS if kind not in ("box", "squashed")])
def test_targets_are_q_lambda_by_the_weights_that_acted(kind: str) -> None:
    policy, kwargs = small_policy(kind)
    model = Tape(
        policy, ENVS[kind](), n_steps=5, batch_size=4, gamma=0.9, q_lambda=0.65, learning_rate=0.01, seed=0, device="cpu",
        exploration_final_eps=0.5, policy_kwargs=kwargs, action_mask="info" if kind in ("masks", "branches") else None,
    )  # fmt: skip
    before = model.learner.flat.clone()
    model.learn(60)
    assert model.compared > 40
    assert not torch.equal(model.learner.flat, before)
    assert bool(torch.isfinite(model.learner.flat).all())


def test_illegal_actions_are_never_taken() -> None:
    games = [MaskedGame(lane, "uneven") for lane in range(2)]
    quick([partial(itself, game) for game in games], action_mask="info").learn(200)
    for game in games:
        assert len(game.played) > 80
        for frame, action in game.played.items():
            assert all(mask[a] for mask, a in zip(game.wanted[frame], action, strict=True))


def itself(game: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    return game


class Chain(gymnasium.Env[Any, Any]):
    """Five places in a row, one-hot; right leads on and out at the end for a reward of 1, left costs nothing and stays."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (5,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.at = 0

    def _seen(self) -> npt.NDArray[np.float32]:
        return np.eye(5, dtype=np.float32)[min(self.at, 4)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += int(action)
        return self._seen(), float(self.at == 5), self.at == 5, False, {}


@SLOW
def test_a_chain_has_its_exact_values() -> None:
    model = PQN(
        "MlpPolicy", lanes(8, Chain), learning_rate="linear 0.01 0.0005", n_steps=8, batch_size=32, n_epochs=2, gamma=0.9,
        q_lambda=0.0, exploration_final_eps=0.5, policy_kwargs={"net_arch": [32], "layer_norm": False}, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(12_000)
    with torch.no_grad():
        q = model.policy.values({"obs": torch.eye(5)})
    right = 0.9 ** torch.arange(4.0, -1.0, -1.0)
    torch.testing.assert_close(q, torch.stack([0.9 * right, right], 1), rtol=0.05, atol=0)


# ---- the loop


def test_updates_come_in_bursts_when_the_rollout_is_full() -> None:
    model = quick(lanes(2, partial(Tiny, length=10_000)), n_steps=3, batch_size=3, n_epochs=2)
    lines = Lines(model)
    model.learn(14, callback=lines)
    burst = ["rollout ends", *["update"] * 4, "rollout starts"]
    assert lines.lines == [
        "rollout starts", "step 2", "step 4",
        *burst, "step 6", "step 8", "step 10",
        *burst, "step 12", "step 14",
    ]  # fmt: skip
    assert model._n_updates == 8
    model.learn(4, reset_num_timesteps=False, callback=lines)  # the second stream's reset is the third tick
    assert lines.lines[-9:] == ["rollout starts", *burst, "step 16", "step 18"]


def test_a_reset_takes_a_tick_and_leaves_a_place_empty() -> None:
    model = quick(lanes(1, partial(Tiny, length=2)), n_steps=3, batch_size=64)
    model.learn(3)  # a step, a step, the reset: full, with two samples
    assert (model.num_timesteps, model._n_updates) == (3, 2)
    assert model.rollout.num_samples == 2
    assert model.rollout.view.weight.tolist() == [1, 1, 0, 0]


def test_nothing_but_resets_gives_no_update() -> None:
    model = quick(lanes(1, partial(Tiny, length=1)), n_steps=1, batch_size=1, n_epochs=1)
    model.learn(6)
    assert model._n_updates == 6  # not 11


def test_actions_after_an_update_are_of_the_new_weights() -> None:
    """The net is made to prefer one action after each burst; from the next step on it is taken."""
    model = quick(lanes(2, partial(Tiny, length=10_000)), exploration_initial_eps=0.0, exploration_final_eps=0.0)
    wanted: list[int] = []
    seen: list[tuple[int, list[int]]] = []
    head = model.policy.q_net.head.outputs.of_actions
    step = model.gradient_step

    def prefer() -> Update:
        update = step()
        wanted.append(len(wanted) % 3)
        with torch.no_grad():
            head.weight.zero_()
            head.bias.copy_(torch.eye(3)[wanted[-1]])
        return update

    model.gradient_step = prefer  # type: ignore[method-assign]

    def look(locals_: Any, globals_: Any) -> bool:
        seen.append((wanted[-1] if wanted else -1, locals_["actions"].tolist()))
        return True

    model.learn(60, callback=look)
    # a callback comes after the updates of its tick, whose action was chosen before: every 5th is one behind
    later = [(want, got) for i, (want, got) in enumerate(seen, 1) if i > 5 and i % 5 != 0]
    assert len(later) > 15
    assert all(got == [want, want] for want, got in later)


def test_log_lines_come_by_rollouts() -> None:
    records: list[dict[str, Any]] = []
    model = quick(lanes(2, partial(Tiny, length=4)))
    logger = configure(None, [])
    dump = logger.dump

    def keep(step: int = 0) -> None:
        records.append({"step": step, **logger.name_to_value})
        dump(step)

    logger.dump = keep  # type: ignore[method-assign]
    model.set_logger(logger)
    model.learn(100, log_interval=3, callback=lambda locals_, globals_: True)
    assert [record["time/iterations"] for record in records] == [3, 6, 9, 12]
    assert records[-1]["train/n_updates"] == 12 * 2 * 2
    for key in ("rollout/ep_rew_mean", "rollout/exploration_rate", "train/learning_rate", "train/loss", "train/q_mean"):
        assert key in records[-1]
    model.learn(20, callback=lambda locals_, globals_: True)
    assert [record["time/iterations"] for record in records[4:]] == [1, 2, 3]  # by default every one


def test_the_same_seed_gives_the_same_run() -> None:
    first, second, other = (quick(seed=seed).learn(80).learner.flat for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.traced
def test_traced_and_eager_updates_are_the_same() -> None:
    traced, eager = quick(), quick()
    assert traced.mode == "traced"
    eager.mode = "eager"
    torch.testing.assert_close(traced.learn(100).learner.flat, eager.learn(100).learner.flat, rtol=1e-4, atol=1e-5)


@pytest.mark.traced
def test_half_precision_learns_too() -> None:
    model = quick(precision="bf16")
    before = model.learner.flat.clone()
    model.learn(60)
    assert not torch.equal(model.learner.flat, before)
    assert torch.equal(model.learner.low, model.learner.flat[: model.learner.low.numel()].bfloat16())  # type: ignore[union-attr, arg-type]


def test_the_schedules_of_rate_and_epsilon_are_followed() -> None:
    model = quick(learning_rate="linear 0.001", exploration_fraction=0.5, exploration_final_eps=0.25)
    rates: list[float] = []
    model.learn(100, callback=lambda locals_, globals_: rates.append(model.learner.optimizer.param_groups[0]["lr"]))
    assert rates[0] == 0.0
    assert rates == sorted(rates[:4]) + sorted(rates[4:], reverse=True)
    assert 0.0 < rates[-1] < 2e-4
    assert model.exploration_rate == 0.25


# ---- the verbs


def test_a_model_goes_on_after_a_round_trip(tmp_path: Path) -> None:
    model = quick(exploration_fraction=1.0).learn(60)
    model.save(tmp_path / "model")
    loaded = PQN.load(tmp_path / "model", env=lanes(2))
    assert torch.equal(loaded.learner.flat, model.learner.flat)
    assert isinstance(loaded.learner.optimizer, torch.optim.RAdam)
    mine, theirs = (m.learner.optimizer.state_dict()["state"][0] for m in (model, loaded))
    assert mine.keys() == theirs.keys() == {"step", "exp_avg", "exp_avg_sq"}
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert loaded.counters == model.counters
    assert loaded.exploration_rate == model.exploration_rate
    for deterministic in (True, False):
        assert loaded.predict(OBS, deterministic=deterministic)[0].tolist() == (
            model.predict(OBS, deterministic=deterministic)[0].tolist()
        )
    updates = loaded._n_updates
    loaded.learn(20, reset_num_timesteps=False)
    assert loaded.num_timesteps == model.num_timesteps + 20
    assert loaded._n_updates > updates


def test_two_loaded_models_go_on_alike(tmp_path: Path) -> None:
    quick().learn(60).save(tmp_path / "model")
    first, second = (PQN.load(tmp_path / "model", env=lanes(2)).learn(60).learner.flat for _ in range(2))
    assert torch.equal(first, second)


def test_there_is_no_target_net(tmp_path: Path) -> None:
    model = quick()
    assert not [name for name in model.policy.state_dict() if "target" in name]
    model.save(tmp_path / "model")
    kept = PQN.load(tmp_path / "model").get_parameters()["policy"]
    assert kept.keys() == model.policy.state_dict().keys()
    other = quick(seed=7)
    other.set_parameters(model.get_parameters())
    assert torch.equal(other.learner.flat, model.learner.flat)


@pytest.mark.parametrize("count", [1, 4])
def test_an_environment_given_later(count: int, tmp_path: Path) -> None:
    quick().learn(30).save(tmp_path / "model")
    loaded = PQN.load(tmp_path / "model")
    with pytest.raises(ConfigurationError, match=r"must have an environment to learn from"):
        loaded.learn(10)
    with pytest.raises(ConfigurationError, match="rollout requires an environment"):
        loaded.rollout  # noqa: B018  # a property
    loaded.set_env(lanes(count))
    loaded.learn(40)
    assert loaded.n_envs == loaded.exploration.num_lanes == count
    assert loaded.rollout.ring.num_lanes == count


def test_another_environment_in_the_middle_of_a_rollout() -> None:
    model: Any = quick(lanes(2, partial(Tiny, length=4, truncates=True)))
    model.learn(16)
    assert model.rollout.ticks > 0
    model.set_env(lanes(2, partial(Tiny, length=3)))
    model.learn(40)
    with pytest.raises(ConfigurationError, match="must have 2 lanes, .* got 3"):
        model.set_env(lanes(3))


def test_there_is_no_replay_to_save(tmp_path: Path) -> None:
    assert not PQN.keeps_replay  # so nobody asks
    with pytest.raises(ConfigurationError, match=r"a replay buffer must be used, got PQN, .* Use save\(...\)"):
        quick().save_replay_buffer(tmp_path / "replay")


def test_checkpoints_do_without_a_replay(tmp_path: Path) -> None:
    """As with Stable-Baselines3, where one list of callbacks serves all algorithms."""
    quick().learn(24, callback=CheckpointCallback(12, tmp_path, save_replay_buffer=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rl_model_12_steps.zip", "rl_model_24_steps.zip"]


def test_another_algorithm_does_not_load_it(tmp_path: Path) -> None:
    from sb_dqn.algorithms import DQN

    quick().save(tmp_path / "model")
    with pytest.raises(CheckpointError, match="must hold a DQN, got a PQN. Load it with PQN.load"):
        DQN.load(tmp_path / "model")


def test_layer_norm_and_radam_may_be_replaced() -> None:
    def has_norm(model: PQN) -> bool:
        return any(isinstance(part, nn.LayerNorm) for part in model.policy.modules())

    assert has_norm(quick())
    plain = quick(policy_kwargs={"layer_norm": False, "optimizer_class": torch.optim.Adam, "net_arch": [8]})
    assert not has_norm(plain)
    assert isinstance(plain.learner.optimizer, torch.optim.Adam)
    assert plain.learn(20)._n_updates > 0


def test_a_dueling_net_learns() -> None:
    model = quick(dueling=True)
    assert model.policy.q_net.head.outputs.of_state is not None
    assert model.learn(40)._n_updates > 0


def test_what_it_does_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    quick(lanes(3), verbose=1, n_steps=8, batch_size=10)
    assert "PQN on cpu: rollouts of 8 x 3 = 24 steps, 2 x 3 updates of 8 samples" in capsys.readouterr().out


def test_a_stacked_observation_is_what_predict_takes_too() -> None:
    model = quick()
    obs, _ = batch_observation(model.observation_space, OBS)
    assert model._actor.selector.bootstrap_values(obs, None).shape == (50,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_steps": 0}, "n_steps must be .* got 0"),
        ({"n_epochs": 0}, "n_epochs must be .* got 0"),
        ({"batch_size": 2.5}, "batch_size must be .* got 2.5"),
        ({"gamma": 1.5}, "gamma must be .* got 1.5"),
        ({"q_lambda": -0.1}, "q_lambda must be .* got -0.1"),
        ({"q_lambda": float("nan")}, "q_lambda must be .* got nan"),
        ({"loss": "mae"}, "loss must be .* got 'mae'"),
        ({"gae_lambda": 0.9}, "PQN must be among .* got 'gae_lambda'.*'q_lambda'"),
        ({"buffer_size": 100}, "PQN must be among .* got 'buffer_size'"),
        ({"dueling": 1}, "dueling must be .* got 1"),
        ({"max_grad_norm": 0}, "max_grad_norm must be .* got 0"),
        ({"policy_kwargs": 3}, "policy_kwargs must be .* got 3"),
        (
            {"policy_kwargs": {"layernorm": True}},
            "keys of policy_kwargs must be .* got 'layernorm'.*Did you mean 'layer_norm'",
        ),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(**arguments)
