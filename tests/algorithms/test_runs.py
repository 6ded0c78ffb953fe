"""Short runs through the public face: every kind of observation, lanes, cadences, seeds."""

from __future__ import annotations

import copy
import random
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import sb_dqn
from sb_dqn.algorithms import DQN, FQF, DoubleDQN, NStepDQN, Rainbow
from sb_dqn.callbacks import BaseCallback
from sb_dqn.errors import ConfigurationError
from sb_dqn.logger import configure
from sb_dqn.types import Update
from tests.marks import SLOW, a_few
from tests.tiny import OBSERVATIONS, Q_AGENTS, SMALL_CNN, Tiny, lanes, quick, small_policy

pytestmark = pytest.mark.usefixtures("eagerly")


def parameters(model: DQN) -> torch.Tensor:
    return model.learner.flat.clone()


@pytest.mark.parametrize(
    ("name", "count"),
    a_few(
        [(name, (1, 4)[place % 2]) for place, name in enumerate(sorted(Q_AGENTS))],
        "DQN",
        "IQN",
        "PQN",
        "R2D2",
        "Rainbow",
    ),
)
def test_cartpole(name: str, count: int) -> None:
    env = sb_dqn.make_vec_env("CartPole-v1", n_envs=count)
    settings = {"PQN": {"n_steps": 8, "batch_size": 16}, "R2D2": {}}.get(name, {"train_freq": 4})
    model = quick(env, algorithm=getattr(sb_dqn, name), **settings)
    before = parameters(model)
    assert model.learn(200) is model
    assert model.num_timesteps >= 200
    assert model._n_updates > 20
    assert not torch.equal(parameters(model), before)
    assert torch.isfinite(parameters(model)).all()
    assert model.n_envs == count
    assert len(model.ep_info_buffer) > 3


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.traced)])
@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_every_kind_of_observation(kind: str, count: int) -> None:
    policy, kwargs = small_policy(kind)
    make = partial(Tiny, kind, start=5)
    model = quick(lanes(count, make), policy, NStepDQN, policy_kwargs=kwargs)
    before = parameters(model)
    model.learn(40)
    assert model._n_updates == 8  # after steps 12, 16 .. 36, 40, or the ticks that cross them
    assert not torch.equal(parameters(model), before)
    action, _ = model.predict(make().reset(seed=0)[0], deterministic=True)
    assert make().action_space.contains(action)


def test_defaults_are_stable_baselines3s() -> None:
    import inspect

    from stable_baselines3 import DQN as Theirs

    ours, theirs = (inspect.signature(cls).parameters for cls in (DQN, Theirs))
    left_out = {"optimize_memory_usage", "replay_buffer_class", "replay_buffer_kwargs", "_init_setup_model"}
    assert theirs.keys() - ours.keys() == left_out
    for name in (theirs.keys() & ours.keys()) - {"self", "policy", "env"}:
        assert ours[name].default == theirs[name].default, name


def test_variants_are_dqn_with_other_defaults() -> None:
    assert DoubleDQN("MlpPolicy", Tiny()).arguments["double_q"] is True
    assert NStepDQN("MlpPolicy", Tiny()).arguments["n_steps"] == 3
    assert NStepDQN("MlpPolicy", Tiny(), n_steps=5).replay.ring.n_steps == 5
    kinds: tuple[tuple[type[DQN], dict[str, Any]], ...] = ((DoubleDQN, {}), (DQN, {"double_q": True}), (DQN, {}))
    rates = {"learning_rate": 0.05, "train_freq": 1, "target_update_interval": 1000}  # so that the two nets disagree
    found = [parameters(quick(algorithm=kind, **rates, **kwargs).learn(60)) for kind, kwargs in kinds]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def counting(*arguments: Any, **kwargs: Any) -> DQN:
    """A model whose updates are counted but not made."""
    model, nothing = quick(*arguments, **kwargs), torch.zeros(3)
    model.gradient_step = lambda: Update(nothing)  # type: ignore[method-assign]
    return model


def expected_updates(total: int, count: int, every: int, each: int, starts: int) -> int:
    """By hand: a firing for each multiple of `every` that a tick of `count` steps crosses, none up to `starts`."""
    updates, paid = 0, 0
    for now in range(count, total + count, count):
        firings = now // every - (now - count) // every
        if firings:
            since, paid = now // every * every - paid, now // every * every
            updates += (since if each == -1 else firings * each) if now > starts else 0
        if now >= total:
            break
    return updates


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize(("every", "each"), [(1, 1), (4, 1), (4, 3), (3, -1), (7, 2), (1, -1)])
@pytest.mark.parametrize("starts", [10, 13])
def test_updates_are_as_many_as_called_for(count: int, every: int, each: int, starts: int) -> None:
    env = lanes(count, partial(Tiny, length=10_000))
    model = counting(env, train_freq=every, gradient_steps=each, learning_starts=starts)
    model.learn(50)
    assert model._n_updates == expected_updates(50, count, every, each, starts)


@pytest.mark.parametrize("length", [3, 5])
def test_reset_rows_pay_for_nothing(length: int) -> None:
    model = counting(Tiny(length=length), train_freq=2)
    model.learn(50)
    assert model.num_timesteps == 50
    assert model._n_updates == 20  # after steps 12, 14 .. 50


@pytest.mark.parametrize(("each", "per_episode"), [(1, 1), (3, 3), (-1, 5)])
def test_updates_after_episodes(each: int, per_episode: int) -> None:
    model = counting(Tiny(length=5), train_freq=(1, "episode"), gradient_steps=each)
    model.learn(40)
    assert model._n_updates == 6 * per_episode  # episodes end at 5, 10 (not after learning_starts), 15 .. 40


def test_a_number_of_steps_as_a_pair() -> None:
    assert counting(train_freq=(4, "step")).learn(50)._n_updates == counting(train_freq=4).learn(50)._n_updates == 10


def test_learning_twice_counts_anew_or_on() -> None:
    model = quick().learn(30)
    assert (model.num_timesteps, model._total_timesteps) == (30, 30)
    model.learn(20, reset_num_timesteps=False)
    assert (model.num_timesteps, model._total_timesteps) == (50, 50)
    model.learn(20)
    assert (model.num_timesteps, model._total_timesteps) == (20, 20)
    assert model.counters.lifetime == 70


@pytest.mark.parametrize(("algorithm", "count"), [(DQN, 1), pytest.param(NStepDQN, 3, marks=pytest.mark.traced)])
def test_the_same_seed_gives_the_same_model(algorithm: type[DQN], count: int) -> None:
    found = []
    for seed, disturbance in ((1, 5), (1, 6), (2, 5)):
        torch.manual_seed(disturbance)
        env = sb_dqn.make_vec_env("CartPole-v1", n_envs=count)
        found.append(parameters(quick(env, algorithm=algorithm, seed=seed, exploration_fraction=0.5).learn(150)))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@SLOW
def test_the_same_seed_gives_the_same_model_from_pixels() -> None:
    kwargs: dict[str, Any] = {"policy_kwargs": {"features_extractor_kwargs": SMALL_CNN}}
    found = [parameters(quick(Tiny("image"), "CnnPolicy", seed=seed, **kwargs).learn(60)) for seed in (1, 1, 2)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_the_environment_is_seeded_from_the_seed() -> None:
    games = [[Tiny() for _ in range(2)] for _ in range(3)]
    for pair, seed in zip(games, (1, 1, 2), strict=True):
        quick([partial(itself, game) for game in pair], seed=seed).learn(20)
    seeds = [[game.seeds[0] for game in pair] for pair in games]
    assert seeds[0] == seeds[1] != seeds[2]
    assert seeds[0][0] != seeds[0][1]
    assert all(seed is None for pair in games for game in pair for seed in game.seeds[1:])


def itself(game: Tiny) -> Tiny:
    return game


def test_set_random_seed_begins_all_streams_anew() -> None:
    first, second = quick(seed=1), quick(seed=2)
    second.set_parameters(first.get_parameters())
    for model in (first, second):
        model.set_random_seed(7)
        model.learn(60)
    assert torch.equal(parameters(first), parameters(second))


def test_the_global_generators_are_left_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # type: ignore[index]  # noqa: NPY002
    model = quick().learn(50)
    model.predict(np.zeros(2, np.float32))
    after = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # type: ignore[index]  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]


class Asks(BaseCallback):
    """Predicts at every step."""

    def _on_step(self) -> bool:
        self.model.predict(np.zeros((3, 2), np.float32))
        return True


def test_predicting_while_learning_changes_nothing() -> None:
    assert torch.equal(parameters(quick().learn(60)), parameters(quick().learn(60, callback=Asks())))


@SLOW
@pytest.mark.traced
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_precisions_learn(precision: str) -> None:
    model = quick(precision=precision, train_freq=1, gamma=0.0, learning_rate=0.02).learn(400)
    q = model.policy.q_net({"obs": torch.zeros(1, 2)}).q[0]
    assert q.tolist() == pytest.approx([1.0, 0.0, 0.0], abs=0.3)


@pytest.mark.parametrize("algorithm", [DQN, Rainbow])
def test_from_pixels_the_low_copy_acts_and_the_master_predicts(algorithm: Any) -> None:
    extractor = {"features_extractor_kwargs": SMALL_CNN}
    model: Any = quick(
        lanes(2, partial(Tiny, "image")), "CnnPolicy", algorithm, precision="bf16", policy_kwargs=extractor
    ).learn(40)
    called: list[str] = []
    model.policy.q_net.register_forward_hook(lambda *_: called.append("master"))
    model.learner.online.register_forward_hook(lambda *_: called.append("copy"))
    model.predict(np.zeros((1, 12, 12), np.uint8))
    assert called == ["master"]
    model.exploration.epsilon = 0.0
    model.collector.actor.selector.select(model.collector.latest, lambda: {"obs": np.zeros((2, 1, 12, 12), np.uint8)})
    assert set(called[1:]) == {"copy"}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_envs_of_gymnasium(mode: AutoresetMode) -> None:
    model = quick(SyncVectorEnv(lanes(2), autoreset_mode=mode)).learn(40)
    assert model.num_timesteps == 40
    assert {info["l"] for info in model.ep_info_buffer} == {5}


def test_an_env_by_id_and_by_itself() -> None:
    assert quick("CartPole-v1").learn(20).num_timesteps == 20
    assert quick(gymnasium.make("CartPole-v1")).learn(20).num_timesteps == 20


@pytest.mark.traced
def test_a_game_of_one_right_action_is_learned() -> None:
    model = quick(learning_rate=0.02, train_freq=1, gamma=0.0, exploration_fraction=0.5, exploration_final_eps=0.0)
    model.learn(400)
    assert [info["r"] for info in model.ep_info_buffer][-10:] == [5.0] * 10
    assert [info["r"] for info in model.ep_info_buffer][:10] != [5.0] * 10


def test_a_log_line_tells_the_means_over_the_updates_of_one_tick() -> None:
    model = quick(train_freq=4, gradient_steps=4, learning_starts=0)
    given = iter(range(1, 1000))

    def step() -> Update:
        return Update(next(given) * torch.tensor([1.0, 10.0, 100.0, 1000.0]))

    model.gradient_step = step  # type: ignore[method-assign]
    logger = configure(None, [])
    lines: list[dict[str, Any]] = []
    logger.dump = lambda step=0: lines.append(dict(logger.name_to_value))  # type: ignore[method-assign]
    model.set_logger(logger)

    def dump(*_: Any) -> bool:
        model.dump_logs()
        return True

    model.learn(13, callback=dump, log_interval=1_000_000)
    assert "train/loss" not in lines[2]  # no update yet
    for tick, mean in ((3, 2.5), (4, 2.5), (7, 6.5), (11, 10.5), (12, 10.5)):  # of 1 .. 4, 5 .. 8, 9 .. 12
        facts = [lines[tick][f"train/{name}"] for name in ("loss", "grad_norm", "q_mean", "td_error")]
        assert facts == pytest.approx([mean, 10 * mean, 100 * mean, 1000 * mean])


def test_short_learns_in_a_row_move_the_target_as_a_long_one_does() -> None:
    model = quick(target_update_interval=100)
    first = model.learner.flat_target.clone()
    model.learn(60)
    assert torch.equal(model.learner.flat_target, first)
    model.learn(60)
    assert not torch.equal(model.learner.flat_target, first)


@pytest.mark.parametrize("function", [lambda left: left**0.5, lambda left: float(np.sqrt(left))])
def test_a_schedule_is_not_called_beyond_its_end(function: Any) -> None:
    model = quick(lanes(3), learning_rate=function)
    model.learn(100)
    assert model.num_timesteps == 102
    assert torch.isfinite(parameters(model)).all()


@SLOW
def test_parameters_are_copies() -> None:
    model = quick()
    model.learn(60)
    kept = model.get_parameters()
    other = quick()
    other.set_parameters(kept)
    other.learn(60)
    model.learn(60)
    assert not torch.equal(parameters(model), parameters(other))
    for again in (model, other):
        again.set_parameters(kept)
    assert torch.equal(parameters(model), parameters(other))
    moments = [
        each.learner.optimizer.state[each.learner.optimizer_step.masters[0]]["exp_avg"] for each in (model, other)
    ]
    assert torch.equal(*moments)
    assert moments[0].data_ptr() != moments[1].data_ptr()


def test_half_precision_without_hidden_layers() -> None:
    model = quick(precision="bf16", policy_kwargs={"net_arch": []})
    before = parameters(model)
    model.learn(60)
    assert not torch.equal(parameters(model), before)


def test_a_ladder_below_a_loaded_epsilon(tmp_path: Path) -> None:
    quick(exploration_initial_eps=0.9).save(tmp_path / "model")
    model = DQN.load(tmp_path / "model", env=lanes(3), exploration={"schedule": 0.4, "ladder": "apex"})
    assert 0.0 < model.exploration_rate <= 0.9
    model.learn(60)
    assert model.exploration_rate < 0.4


def test_moments_of_another_net_are_refused() -> None:
    model, small = (quick(policy_kwargs={"net_arch": [width]}).learn(60) for width in (16, 4))
    before = model.get_parameters()
    with pytest.raises(
        ConfigurationError, match="'policy.optimizer' must be the state of an optimizer of the same parameters"
    ):
        model.set_parameters({"policy.optimizer": small.get_parameters()["policy.optimizer"]}, exact_match=False)
    assert str(model.get_parameters()) == str(before)
    without = quick(policy_kwargs={"net_arch": [16], "optimizer_class": torch.optim.SGD}).learn(60)
    model.set_parameters({"policy.optimizer": without.get_parameters()["policy.optimizer"]}, exact_match=False)
    model.learn(60)  # that one has no moments: they begin anew


@SLOW
@pytest.mark.parametrize("broken", ["policy", "policy.apart.optimizer"])
def test_parameters_that_fit_in_part_change_nothing(broken: str) -> None:
    def fqf(width: int) -> FQF:
        kwargs = {"net_arch": [width]}
        return FQF("MlpPolicy", Tiny(), n_fractions=width, policy_kwargs=kwargs, learning_starts=20, seed=0).learn(60)

    model, alike, other = fqf(8), fqf(8), fqf(4)
    alike.learn(60)
    before = str(model.get_parameters())
    with pytest.raises(ConfigurationError):
        model.set_parameters({**alike.get_parameters(), broken: other.get_parameters()[broken]})
    assert str(model.get_parameters()) == before
    model.set_parameters(alike.get_parameters())
    assert str(model.get_parameters()) == str(alike.get_parameters()) != before


def test_an_optimizer_that_keeps_more_begins_anew(tmp_path: Path) -> None:
    quick(policy_kwargs={"net_arch": [8]}).learn(60).save(tmp_path / "model")
    kwargs = {"net_arch": [8], "optimizer_kwargs": {"amsgrad": True}}
    again = DQN.load(tmp_path / "model", env=Tiny(), policy_kwargs=kwargs).learn(60)
    assert "max_exp_avg_sq" in next(iter(again.learner.optimizer.state.values()))


def test_a_model_is_not_copied_by_halves() -> None:
    model = quick().learn(60)
    with pytest.raises(ConfigurationError, match=r"DQN.load\(path"):
        copy.deepcopy(model)
    assert copy.deepcopy(model.policy) is not model.policy
