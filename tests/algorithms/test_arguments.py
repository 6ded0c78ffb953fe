"""Bad input: each value gives one clear error that names the argument, what was given, what is allowed and the fix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from sb_dqn.algorithms import ALGORITHMS, DQN, R2D2, DoubleDQN, NStepDQN
from sb_dqn.buffers import Sequences
from sb_dqn.core.arguments import constructor_arguments
from sb_dqn.errors import ConfigurationError, MemoryBudgetError, SpaceError
from tests.marks import a_few
from tests.tiny import Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

# One value of a wrong type and those just out of range, where a bound is allowed too the nearest one past it: test_checks.py has
# every other wrong value of each check. What else stands here means something of its own.
TABLE: dict[str, list[Any]] = {
    "learning_rate": ["x", 0, -1e-4, None, "-1", "linear -1", lambda progress: -1.0],
    "buffer_size": [None, 1.5, 0],
    "learning_starts": [None, 1.5, -1],
    "batch_size": ["x", 1.5, 0],
    "tau": [None, -0.1, 1.1],
    "gamma": ["x", math.nan, -0.1, 1.1, {"start": 0.9}, {"start": 0.9, "end": 1.0, "updates": 5}],
    "train_freq": [
        "x", True, 1.5, 0, None, [], (1,), (1, 2, 3), (0, "step"), (1.5, "episode"), (1, "week"), (1, None), ("step", 1),
    ],
    "gradient_steps": [None, 1.5, -2],
    "n_steps": [[], 1.5, 0, {"start": 3, "end": 0, "updates": 5}, {"start": 3, "end": 1, "updates": 0}, {"from": 3}],
    "target_update_interval": [None, 1.5, 0],
    "exploration_fraction": [None, -0.1, 1.1],
    "exploration_initial_eps": ["x", -0.1, 1.1],
    "exploration_final_eps": [None, math.nan, -0.1, 1.1],
    "max_grad_norm": ["x", math.inf, 0],
    "double_q": ["yes", 1],
    "dueling": [None, 1],
    "noisy": ["gaussian", 1, None, {"sigma": -1}, {"sigm": 1}, {"kind": "both"}],
    "prioritized_replay": ["yes", 1, None, {"alpha": -1}, {"beta": 2}, {"alfa": 1}],
    "munchausen": ["yes", 1, None, {"tau": 0}, {"clip": 1}, {"alfa": 1}],
    "exploration": ["epsilom", 3, [], {"kind": "boltzman"}, {"ladder": "ape"}],
    "act_with": ["both", None, True],
    "evaluation_eps": ["x", -0.1, 1.1],
    "action_mask": ["inf", "key", 3],
    "normalize_observations": ["yes", 1, None, {"clip": 0}, {"clip": math.nan}, {"epsilon": 0}, {"keys": "obs"}, {"keys": ["ob"]}],
    "normalize_rewards": ["yes", 1, None, {"clip": -1}, {"epsilon": "x"}, {"peak": 0}, {"gamma": 0.9}],
    "sequences": [True, 3, [], "long", {}, {"batch_T": 8}, Sequences()],
    "loss": ["hubber", None, ["mse"], nn.MSELoss()],
    "value_loss": ["gauss", 1, None, {"bins": 2}, {"v_min": 0}, {"v_min": 1, "v_max": 0}, {"transform": "log"}, {"range": 3}],
    "stats_window_size": [None, 1.5, 0],
    "tensorboard_log": [3, True, ["runs"]],
    "policy_kwargs": [3, "net_arch", [64, 64], {"net_arc": [64]}, {3: 4}],
    "verbose": [None, 1.5, -1],
    "seed": ["3", True, 1.5, -1, 2**64],
    "device": ["gpu", "cuda:x", None, 3.5, [], "meta"],
    "precision": ["fp16", None, torch.bfloat16],
    "torch_compile": ["yes", 1, None],
    "target": ["network", None, True],
    "iterations": [None, 1.5, 0, 2],
    "ensemble": [None, 1, 2.5, "bootstrapped", {"members": 1}, {"prior_scale": -1}, {"share": 0}, {"share": 1.5}, {"heads": 3}],
    "buffer_device": ["gpu", 3.5, []],
    "buffer_path": [3, True, ["file"]],
    "actors": ["threads", 3, "process:2@auto", {"lanes": 2}, {"processes": 2, "lane": 1}],
    "augmentation": ["crop", 4, None, {"shift": -1}, {"intensity": -0.1}, {"shift": 0, "intensity": 0}, {"pad": 3}],
    "self_prediction": ["spr", 4, None, {"steps": 0}, {"weight": 0}, {"horizon": 3}],
    "cql_alpha": ["x", None, True, -0.1, math.nan],
    "resets": ["often", True, None, 0, {"keep": 0.5}, {"every": 5, "keep": 2}, {"every": 5, "until": 3}, {"each": 4}],
    "redo": ["often", None, 0, 2.5, {"every": 0}, {"threshold": 1.0}, {"threshold": -0.1}, {"reset_counts": 1}, {"tau": 0.1}],
    "hindsight": ["future", 1, None, {"n_sampled_goal": 0}, {"goal_selection_strategy": "past"}, {"n": 4}],
}  # fmt: skip


def test_the_table_has_every_argument() -> None:
    assert TABLE.keys() == quick().arguments.keys() - {"policy"}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in TABLE.items() for value in values])
def test_values_that_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        quick(**{name: value})
    message = str(caught.value)
    assert name in message
    assert "must" in message or "allowed" in message or "give" in message
    # what was given, unless it is a pair of which one half is at fault, or a dict of which one key is
    assert isinstance(value, (tuple, dict)) or repr(value) in message


ALLOWED: dict[str, list[Any]] = {
    "learning_rate": [1e-3, "linear 1e-3", lambda progress: progress * 1e-3],
    "buffer_size": [8, 1e3],
    "learning_starts": [0],
    "batch_size": [1, np.int64(4)],
    "tau": [1, 0.005, 0],
    "gamma": [0, 1],
    "train_freq": [1, (2, "episode"), [2, "step"]],
    "gradient_steps": [-1, 0, 5],
    "n_steps": [1, 5],
    "exploration_fraction": [0, 1],
    "max_grad_norm": [None, 0.5],
    "normalize_observations": [True, {"clip": 3}, {"keys": ["obs"]}],
    "normalize_rewards": [True, {"epsilon": 1e-3}],
    "seed": [None, 0, 2**63 - 1],
    "device": ["auto", "cpu", torch.device("cpu")],
    "buffer_device": [None, "cpu"],
    "policy_kwargs": [None, {}],
    "verbose": [0],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ALLOWED.items() for value in values])
def test_values_that_are_allowed(name: str, value: Any) -> None:
    quick(**{name: value, "tensorboard_log": None}).learn(16)


INTEGERS: dict[str, int] = {
    "batch_B": 4,
    "batch_T": 4,
    "batch_size": 8,
    "buffer_size": 400,
    "episodes_per_update": 2,
    "gradient_steps": 1,
    "input_priority_shift": 1,
    "iterations": 1,
    "learning_starts": 10,
    "n_atoms": 5,
    "n_cosines": 6,
    "n_epochs": 2,
    "n_fractions": 5,
    "n_policy_taus": 3,
    "n_quantiles": 5,
    "n_steps": 4,
    "n_target_taus": 3,
    "n_taus": 3,
    "redo": 25,
    "resets": 25,
    "seed": 3,
    "sequence_length": 2,
    "sde_sample_freq": 3,
    "stats_window_size": 7,
    "store_rnn_state_interval": 2,
    "target_update_interval": 20,
    "train_freq": 4,
    "verbose": 0,
    "warmup_T": 2,
}


def integer_arguments(algorithm: type[Any]) -> list[str]:
    return [name for name, each in constructor_arguments(algorithm).items() if str(each.annotation).startswith("int")]


def attributes_of(part: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yields the attributes of an object and of all parts of the package that it leads to."""
    if id(part) in seen or not type(part).__module__.startswith("sb_dqn"):
        return
    seen.add(id(part))
    for name, value in getattr(part, "__dict__", {}).items():
        yield name, value
        for each in (
            value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
        ):
            yield from attributes_of(each, seen)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_integer_argument_may_be_a_float_of_integral_value_and_is_stored_as_an_int(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    algorithm = ALGORITHMS[name]
    names = integer_arguments(algorithm)
    kwargs: dict[str, Any] = {}
    if "sequence_length" in names:
        kwargs = {"policy": "MlpLstmPolicy", "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6}}
    model: Any = quick(algorithm=algorithm, **kwargs, **{each: float(INTEGERS[each]) for each in names}).learn(40)
    attributes = list(attributes_of(model, set()))
    for each in names:
        stored = [getattr(model, each), *(value for found, value in attributes if found == each)]
        assert [type(value) for value in stored if value is not None] == [int] * len(stored)
        assert stored[0] == INTEGERS[each]
    assert model._n_updates > 0


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gama", "got 'gama'. Use one of them. Did you mean 'gamma'"),
        ("learning_rat", "Did you mean 'learning_rate'"),
        ("lr", "must be among those that help.*got 'lr'. Use one of them. Did you mean 'learning_rate'"),
        ("buffersize", "Did you mean 'buffer_size'"),
        ("optimize_memory_usage", "each frame is stored once anyway. Leave it out"),
        ("replay_buffer_class", "Dict observations combine without it. Leave it out"),
        ("replay_buffer_kwargs", "buffer_size, buffer_device and buffer_path replace it. Leave it out"),
    ],
)
def test_unknown_keywords(algorithm: type[DQN], name: str, message: str) -> None:
    if name == "buffersize" and "buffer_size" not in constructor_arguments(algorithm):
        message = "must be among"  # it has no buffer
    with pytest.raises(
        ConfigurationError,
        match=f"{name} must be unset for {algorithm.__name__}|{algorithm.__name__} must be among .*'{name}'",
    ) as caught:
        quick(algorithm=algorithm, **{name: 1})
    with pytest.raises(ConfigurationError, match=message):
        raise caught.value


def test_buffer_classes_are_answered_with_what_replaces_them() -> None:
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    her = pytest.importorskip("stable_baselines3").HerReplayBuffer

    class Own(her):  # type: ignore[misc, valid-type]  # a class that is found while running
        pass

    given: list[dict[str, Any]] = [{"replay_buffer_class": value} for value in (her, Own, "HerReplayBuffer")]
    given.append({"replay_buffer_kwargs": {"n_sampled_goal": 4, "goal_selection_strategy": "future"}})
    for keywords in given:
        with pytest.raises(
            ConfigurationError, match=r"hindsight experience replay is a setting.*Use hindsight=dict\(n_sampled_goal=4"
        ):
            quick(**keywords)
    for value in (buffers.ReplayBuffer, buffers.DictReplayBuffer, "NStepReplayBuffer", None):
        with pytest.raises(ConfigurationError, match="Dict observations combine without it. Leave it out"):
            quick(replay_buffer_class=value)
    with pytest.raises(ConfigurationError, match="buffer_size, buffer_device and buffer_path replace it. Leave it out"):
        quick(replay_buffer_kwargs={"handle_timeout_termination": True})


@pytest.mark.parametrize(("algorithm", "name"), [(DoubleDQN, "double_q"), (NStepDQN, "n_steps")])
def test_variants_offer_their_own_keyword(algorithm: type[DQN], name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Did you mean '{name}'"):
        quick(algorithm=algorithm, **{name + "s": 1})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("MlpPolici", "policy must be one of .*, got 'MlpPolici'.*Did you mean 'MlpPolicy'"),
        ("MlpLstmPolici", "Did you mean 'MlpLstmPolicy'"),
        (nn.Linear, "policy must be one of .*, got <class"),
        (None, "policy must be one of .*, got None"),
        ("CnnPolicy", "must be one image .* for CnnPolicy, got .* Use 'MlpPolicy'"),
        ("MultiInputPolicy", "observation_space must be a Dict for MultiInputPolicy.*'MlpPolicy' for vectors"),
    ],
)
def test_policies_that_are_refused(policy: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(policy=policy)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (None, "env must be an id"),
        ("CartPol-v1", "must be an id registered .*got 'CartPol-v1'.*Did you mean 'CartPole-v1'"),
        (3, "env must be an id, .* got int"),
        ([], "must be a list of at least one factory"),
    ],
)
def test_environments_that_are_refused(env: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DQN("MlpPolicy", env)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete(np.array([[2, 2]])), spaces.Text(3)])
def test_action_spaces_that_are_refused(space: Any) -> None:
    game = Tiny()
    game.action_space = space
    with pytest.raises(SpaceError, match=r"must be Discrete\(n, start=...\)"):
        quick(game)


def test_observation_spaces_that_are_refused() -> None:
    game = Tiny()
    game.observation_space = spaces.Tuple([spaces.Text(2)])
    with pytest.raises(SpaceError, match="must be Box, Discrete"):
        quick(game)


@pytest.mark.parametrize(
    ("algorithm", "kwargs"),
    a_few(
        [
            (DQN, {}),
            (DQN, {"prioritized_replay": True}),
            (DQN, {"prioritized_replay": {"uniform_mix": 0.5}, "n_steps": 2}),
            (R2D2, {"batch_T": 4, "warmup_T": 2, "store_rnn_state_interval": 2}),
        ],
        DQN,
    ),
)
@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_larger_than_the_buffer_holds_rows_more_than_once(algorithm: Any, kwargs: Any, count: int) -> None:
    size = {"batch_B": 64} if algorithm is R2D2 else {"batch_size": 64}
    policy = "MlpLstmPolicy" if algorithm is R2D2 else "MlpPolicy"
    model = algorithm(
        policy,
        lanes(count),
        learning_starts=20,
        buffer_size=60,
        policy_kwargs={"net_arch": [8]},
        seed=0,
        **size,
        **kwargs,
    )
    model.learn(800 if algorithm is R2D2 else 100)
    assert model._n_updates >= 2
    assert all(bool(tensor.isfinite().all()) for tensor in model.policy.state_dict().values())
    replay = model.replay
    replay.refresh()
    batch = replay.sample_from(torch.rand(replay.sampler.noise_shape, dtype=torch.float64))
    drawn = set(zip(*batch.place.tolist(), strict=True))
    assert batch.place.shape == (2, 64)
    assert 5 < len(drawn) < 60
    assert bool((batch.weight > 0).any())


@pytest.mark.parametrize(("count", "n_steps"), [(1, 40), (8, 5)])
def test_a_buffer_too_small_for_one_window(count: int, n_steps: int) -> None:
    with pytest.raises(
        ConfigurationError, match=r"buffer_size must be at least \d+, got 40: .*n_steps \+ frame_stack = "
    ):
        quick(lanes(count), buffer_size=40, n_steps=n_steps)


def test_a_replay_larger_than_memory() -> None:
    with pytest.raises(MemoryBudgetError, match="needs .*TiB, but only .* are available.*buffer_path"):
        quick(Tiny("image"), "CnnPolicy", buffer_size=10**11, policy_kwargs={"net_arch": [], "features_extractor_kwargs": {
            "features_dim": 4, "channels": (4,), "kernels": (4,), "strides": (2,)}})  # fmt: skip


@pytest.mark.parametrize("total", [0, -1, 1.5, math.nan, "10", None, True])
def test_numbers_of_steps_that_are_refused(total: Any) -> None:
    model = quick().learn(20)
    with pytest.raises(ConfigurationError, match="total_timesteps must be an integer >= 1.* got .*"):
        model.learn(total)
    assert model.num_timesteps == 20


@pytest.mark.parametrize("interval", [0, -1, 1.5, "4", True])
def test_log_intervals_that_are_refused(interval: Any) -> None:
    model = quick().learn(20)
    with pytest.raises(ConfigurationError, match="log_interval must be an integer.* got .*"):
        model.learn(10, log_interval=interval)
    assert model.num_timesteps == 20


@pytest.mark.parametrize("callback", [3, "eval", [3], object()])
def test_what_is_no_callback_loses_nothing(callback: Any) -> None:
    model = quick().learn(20)
    with pytest.raises(ConfigurationError, match="callback must be"):
        model.learn(10, callback=callback)
    assert model.num_timesteps == 20
    assert not model.learning
    assert model.learn(10).num_timesteps == 10


@pytest.mark.parametrize("seed", [-1, 1.5, "3", True])
def test_seeds_that_are_refused_later(seed: Any) -> None:
    with pytest.raises(ConfigurationError, match="seed must be .* got"):
        quick().set_random_seed(seed)
