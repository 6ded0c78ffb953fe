"""Bad input to what came with the variants: one clear error that says what was given, what is allowed, and the fix."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from torch import nn

from sb_dqn.algorithms import ALGORITHMS, DQN, FQF, IQN, PQN, QRDQN, R2D2, CategoricalDQN
from sb_dqn.core.arguments import constructor_arguments
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError
from sb_dqn.nn import HadamaxCNN, ImpalaCNN, MinAtarCNN, NatureCNN
from sb_dqn.schedules import Linear
from tests.algorithms.test_arguments import TABLE
from tests.choices import Choices
from tests.tiny import Q_AGENTS, Tiny, quick

pytestmark = pytest.mark.usefixtures("eagerly")

WHOLE = [None, 1.5, 0]
KAPPA = ["x", -1e-9]
BOLTZMANN = {"kind": "boltzmann"}
APEX, LOG = {"ladder": "apex"}, {"ladder": "log"}

SWITCHES: dict[str, list[Any]] = {
    "noisy": [
        "factorized", [], 3.5, {"kin": "factorised"}, {"kind": "gaussian"}, {"kind": None}, {"sigma": -0.1}, {"sigma": "x"}, {3: 4},
    ],
    "prioritized_replay": [
        [], {"alpha": -0.1}, {"alpha": "x"}, {"beta": 1.1}, {"beta": -0.1}, {"beta": "x"}, {"beta": None}, {"beta": Linear(0.4, 1.5)},
        {"beta": lambda progress: 2.0}, {"eps": 0}, {"eps": None}, {"initial": "min"}, {"initial": 0}, {"initial": None},
        {"initial": True}, {"uniform_mix": None}, {"uniform_mix": -0.1}, {"uniform_mix": 1.1}, {3: 4},
    ],
    "munchausen": [
        [], {"alpha": "x"}, {"alpha": -0.1}, {"alpha": 1.1}, {"tau": 1e-30}, {"tau": None}, {"clip": 0.1}, {"clip": None},
        {"clip": -math.inf}, {3: 4},
    ],
    "exploration": [
        "greedy", True, {"kin": "epsilon"}, {"kind": 3}, {**BOLTZMANN, "schedule": 1.0}, {**BOLTZMANN, "temperature": 0},
        {**BOLTZMANN, "temperature": -1}, {**BOLTZMANN, "temperature": "x"},
        {**BOLTZMANN, "ladder": "apex"}, {"temperature": 1.0}, {"kind": "none", "off_after": 3}, {"ladder": "apx"}, {"ladder": 3},
        {**APEX, "ladder_min": 0.01}, {**APEX, "ladder_alpha": 0}, LOG, {**LOG, "ladder_min": 0},
        {**LOG, "ladder_min": 0.9}, {**LOG, "ladder_alpha": 7.0}, {"ladder_alpha": 3.0}, {"ladder_min": 0.1},
        {"schedule": 0.0, **APEX}, {"off_after": -1}, {"off_after": 1.5}, {"schedule": 2.0}, {"schedule": -0.1},
        {"schedule": Linear(0.1, 1.1)}, {"schedule": "x"}, {"schedule": [(0, 1.0), (0, 0.5)]}, {"schedule": [(0, 1.0, 3)]},
        {"schedule": lambda progress: 2.0}, {3: 4},
    ],
    "action_mask": ["obs", "place", "", True, ["info"], b"info"],
}  # fmt: skip
OF_HEADS: dict[Any, dict[str, list[Any]]] = {
    CategoricalDQN: {
        "n_atoms": [*WHOLE, 1],
        "v_min": ["x", math.inf, 10, 11],
        "v_max": [None, math.nan, -10, -11, 1e30],
        "priority": ["KL", "td", None, 3],
    },
    QRDQN: {"n_quantiles": WHOLE, "kappa": KAPPA},
    IQN: {
        **dict.fromkeys(("n_taus", "n_target_taus", "n_policy_taus", "n_cosines"), WHOLE),
        "kappa": KAPPA,
        "risk": [
            "cvar", "cvar 0", "cvar 2", "cvar x", "cvr 0.25", "cvar 0.25 3", "power", "power nan", "neutral", "", 0.25, True, [],
        ],
    },
    FQF: {
        "n_fractions": [*WHOLE, 1],
        "n_cosines": WHOLE,
        "kappa": KAPPA,
        "fraction_learning_rate": [None, -1e-9],
        "entropy_coef": ["x", -0.1],
    },
    R2D2: {
        "batch_T": [*WHOLE, 5],
        "batch_B": WHOLE,
        "warmup_T": [None, 1.5, -1, 1],
        "store_rnn_state_interval": [None, 1.5, -1, 3],
        "replay_ratio": ["x", 0],
        "count_burn_in": [1, None],
        "pri_eta": [None, -0.1, 1.1],
        "input_priorities": ["yes", 1],
        "input_priority_shift": ["x", 1.5, -1, 2],
        "value_rescale_eps": ["x", -1e-3],
        "loss": ["hubber", None],
    },
    PQN: {
        "n_steps": WHOLE,
        "batch_size": WHOLE,
        "n_epochs": WHOLE,
        "q_lambda": [None, -0.1, 1.1],
        "gamma": ["x", -0.1, 1.1],
        "loss": ["hubber", None],
        "exploration_final_eps": [None, -0.1, 1.1],
        "exploration": ["epsilom", {"kin": "epsilon"}],
        "evaluation_eps": [2],
        "action_mask": ["inf"],
        "dueling": [1],
    },
}  # fmt: skip
REFUSED = [(DQN, *pair) for pair in SWITCHES.items()] + [
    (algorithm, *pair) for algorithm, table in OF_HEADS.items() for pair in table.items()
]


@pytest.mark.parametrize(
    ("algorithm", "name", "value"),
    [(algorithm, name, value) for algorithm, name, values in REFUSED for value in values],
)
def test_values_that_are_refused(algorithm: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        quick(algorithm=algorithm, **{name: value})
    message = str(caught.value)
    assert name in message
    assert any(word in message for word in ("must", "allowed", "give", "needs"))
    # what was given, unless it is a dict of which one key is at fault
    assert isinstance(value, dict) or repr(value) in message or f"{name}={float(value)!r}" in message
    assert (
        not isinstance(value, dict)
        or not value
        or any(str(key) in message or repr(value[key]) in message for key in value)
    )


def test_every_argument_has_its_table() -> None:
    known = TABLE.keys() | SWITCHES.keys()
    for algorithm in Q_AGENTS.values():
        own = {name for parent in algorithm.__mro__ for name in OF_HEADS.get(parent, ())}
        assert constructor_arguments(algorithm).keys() <= known | own, algorithm


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"noisy": "factorized"}, r"noisy\['kind'\] must be one of .* got 'factorized'.*Did you mean 'factorised'"),
        ({"noisy": {"sgima": 1}}, "keys of noisy must be among .*, got 'sgima'.*Did you mean 'sigma'"),
        (
            {"noisy": 3},
            r"noisy must be True, False or a dict with any of the keys kind, sigma \(or a str for 'kind'\), got 3",
        ),
        (
            {"prioritized_replay": {"alfa": 1}},
            "keys of prioritized_replay must be among .*, got 'alfa'.*Did you mean 'alpha'",
        ),
        ({"prioritized_replay": {"initial": "min"}}, "initial'.* must be 'max', 'td_error' or a number above 0"),
        ({"munchausen": {"temp": 1}}, "keys of munchausen must be among .'alpha', 'clip', 'tau'., got 'temp'"),
        ({"munchausen": {"tau": 0}}, r"munchausen\['tau'\] must be a number >= 1e-06.* got 0"),
        ({"munchausen": {"clip": 1}}, "must be a finite number <= 0, got 1"),
        ({"exploration": {"scheduel": 1}}, "must be among .*, got 'scheduel'.*Did you mean 'schedule'"),
        ({"exploration": {"kin": "none"}}, "must be among .*, got 'kin'.*Did you mean 'kind'"),
        ({"exploration": {"kind": "boltzman"}}, "Did you mean 'boltzmann'"),
        ({"exploration": LOG}, r"exploration\['ladder_min'\] must be a number > 0.* got None"),
        ({"exploration": APEX, "exploration_final_eps": 0}, "final epsilon must be above 0 with .*got 0"),
        ({"evaluation_eps": 2}, "evaluation_eps must be a number >= 0 and <= 1.* got 2"),
        ({"policy_kwargs": {"scale_trunk_gradient": True}}, "must be False without dueling=True, got True"),
        (
            {"policy_kwargs": {"scale_trunk_gradient": 1}, "dueling": True},
            "scale_trunk_gradient'. must be True or False, got 1",
        ),
        ({"policy_kwargs": {"layer_norm": "yes"}}, "layer_norm'. must be True or False.* got 'yes'"),
        ({"policy_kwargs": {"spectral_norm": "yes"}}, "spectral_norm'. must be True or False.* got 'yes'"),
        ({"policy_kwargs": {"config": 3}}, "keys of policy_kwargs must be among .*, got 'config'"),
        (
            {"policy_kwargs": {"optimizer_kwargs": {"epsilon": 1}}},
            "optimizer_kwargs must be arguments of Adam.*, got {'epsilon': 1}",
        ),
    ],
)
def test_the_fix_is_named(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(**kwargs)


@pytest.mark.parametrize("algorithm", [CategoricalDQN, QRDQN, IQN, FQF, ALGORITHMS["Rainbow"], ALGORITHMS["BTR"]])
def test_a_distribution_has_a_loss_of_its_own(algorithm: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=f"loss must be unset for {algorithm.__name__}, got 'mse'. Remove it: it is"
    ):
        quick(algorithm=algorithm, loss="mse")


@pytest.mark.parametrize("value", [7, "relu", [("net_arch", [64])]])
def test_policy_kwargs_must_be_a_dict_for_every_class(value: Any) -> None:
    for algorithm in Q_AGENTS.values():
        with pytest.raises(ConfigurationError, match="policy_kwargs must be a dict of keyword arguments or None, got"):
            quick(algorithm=algorithm, policy_kwargs=value)


FOREIGN = {
    "n_atoms": CategoricalDQN, "v_min": CategoricalDQN, "priority": CategoricalDQN, "n_quantiles": QRDQN, "risk": IQN,
    "n_target_taus": IQN, "n_fractions": FQF, "entropy_coef": FQF, "q_lambda": PQN, "n_epochs": PQN,
}  # fmt: skip


@pytest.mark.parametrize("algorithm", Q_AGENTS.values())
def test_keywords_of_other_classes(algorithm: Any) -> None:
    for name, owner in FOREIGN.items():
        if not issubclass(algorithm, owner):
            with pytest.raises(ConfigurationError, match=f"of {algorithm.__name__} must be among .*, got '{name}'"):
                quick(algorithm=algorithm, **{name: 1})


@pytest.mark.parametrize(
    "name", ["double_q", "noisy", "prioritized_replay", "munchausen", "buffer_size", "tau", "train_freq"]
)
def test_what_a_rollout_has_no_use_for(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"arguments of PQN must be among .*, got '{name}'"):
        quick(algorithm=PQN, **{name: 1})


# -- convolutions


@pytest.mark.parametrize(
    ("extractor", "kwargs", "message"),
    [
        (NatureCNN, {"chanels": (4,)}, "must be arguments of NatureCNN, .*got .*'chanels'.*Did you mean 'channels'"),
        (NatureCNN, {3: 4}, "must be arguments of NatureCNN, among .*, got .*3"),
        (NatureCNN, {"features_dim": 1.5}, "features_dim must be an integer >= 1.* got 1.5"),
        (NatureCNN, {"paddings": (1, 1)}, r"must have the same length, .* paddings=\(1, 1\)"),
        (NatureCNN, {"kernels": (40, 4, 3)}, "images must be .* for kernels .* Resize them, .* or use .*MinAtarCNN"),
        (MinAtarCNN, {"width": 2}, "must be arguments of MinAtarCNN, among .*, got .*'width'"),
        (ImpalaCNN, {"width": True}, "width must be .* got True"),
        (ImpalaCNN, {"width": 3}, "width must be 1, 2 or 4, got 3"),
        (ImpalaCNN, {"widths": ()}, r"widths must not be empty, got \(\). Give the channels of one stage or more"),
        (ImpalaCNN, {"adaptive_pool": (60, 60)}, "at most the size of its input, 5 x 5, got .* Give at most that"),
        (ImpalaCNN, {"adaptive_pol": (6, 6)}, "Did you mean 'adaptive_pool'"),
        (HadamaxCNN, {"spectral_norm": True}, "must be arguments of HadamaxCNN, among .*, got .*'spectral_norm'"),
        (HadamaxCNN, {"layer_norm": "all"}, "layer_norm must be True, False or 'channels', got 'all'"),
    ],
)
def test_options_of_convolutions(extractor: Any, kwargs: dict[Any, Any], message: str) -> None:
    game = Tiny()
    game.observation_space = Tiny("dict with image").observation_space["camera"]  # type: ignore[index]  # a Dict
    given = {"features_extractor_class": extractor, "features_extractor_kwargs": kwargs}
    with pytest.raises(ConfigurationError, match=message):
        quick(game, "CnnPolicy", policy_kwargs=given)


def test_what_is_no_extractor() -> None:
    for given in (3, nn.Linear(2, 2)):
        with pytest.raises(ConfigurationError, match="features_extractor_class must be a subclass of.* got .*"):
            quick(policy_kwargs={"features_extractor_class": given})


# -- masks


class Odd(Choices):
    """Tells its legal actions wrongly after the step `at` of an episode."""

    def __init__(self, mask: Any, at: int, actions: str = "discrete") -> None:
        super().__init__("vector", actions, masks=True)
        self.odd, self.at = mask, at

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        observation, info = super()._observe()
        return observation, ({} if self.odd is None else {"action_mask": self.odd}) if self.t == self.at else info


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize(("at", "when"), [(0, "after the reset"), (3, "at step 3")])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (
            np.zeros(4, bool),
            "lane 0 {when} must allow an action in a state that is not terminal, got none. Allow one, or terminate",
        ),
        (np.ones(5, bool), r"must be of shape \(4,\), got shape \(5,\)"),
        (np.ones((1, 4), bool), r"must be of shape \(4,\), got shape \(1, 4\)"),
        (np.ones(4), "{when} must be bool, or integers 0 and 1, got dtype float64"),
        (np.array([0, 1, 2, 1]), "lane 0 {when} must hold only 0 and 1 \\(legal\\), got 2"),
        (None, r"info of lane 0 {when} must contain 'action_mask' .*, or leave action_mask out"),
        ("abc", r"must be of shape \(4,\), got shape \(\)"),
    ],
)
def test_masks_that_are_refused(mask: Any, message: str, at: int, when: str, lanes: int) -> None:
    model = quick([partial(Odd, mask, at)] * lanes, action_mask="info")
    with pytest.raises(EnvironmentFault, match=message.format(when=when)):
        model.learn(40)
    assert not model.learning


def test_one_branch_without_a_legal_action() -> None:
    model = quick(Odd(np.array([1, 1, 0, 0, 0, 0, 1, 1, 1]), 2, "multi discrete"), action_mask="info")
    with pytest.raises(EnvironmentFault, match="lane 0 at step 2 must allow an action of branch 1"):
        model.learn(40)


def test_an_environment_without_masks() -> None:
    model = quick(action_mask="info")
    with pytest.raises(EnvironmentFault, match=r"after the reset must contain 'action_mask' with action_mask='info'"):
        model.learn(10)


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (
            "legl",
            ConfigurationError,
            r"must be None, 'info' .*or an observation key .*got 'legl'.*Did you mean 'legal'",
        ),
        ("place", SpaceError, r"action_mask='place' must be bool, or integers 0 and 1, of shape \(4,\), got Box"),
        ("mode", SpaceError, r"got Discrete.*Use MultiBinary"),
    ],
)
def test_keys_that_hold_no_mask(key: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        quick(Choices("dict"), "MultiInputPolicy", action_mask=key)


# -- what is allowed after all

ALLOWED: list[tuple[Any, dict[str, Any]]] = [
    (DQN, {"noisy": "independent"}),
    (DQN, {"noisy": {}}),
    (DQN, {"noisy": {"kind": "factorised", "sigma": 0}}),
    (DQN, {"noisy": True, "exploration": "epsilon"}),
    (DQN, {"prioritized_replay": {"alpha": 0, "beta": 1, "initial": 5, "uniform_mix": 1.0}}),
    (DQN, {"prioritized_replay": {"beta": "linear 0.4 1"}}),
    (DQN, {"munchausen": {"alpha": 0, "clip": 0}}),
    (DQN, {"exploration": {"schedule": [(0, 1.0), (20, 0.5)], "off_after": 30}}),
    (DQN, {"exploration": {"kind": "boltzmann", "temperature": "linear 1 0.1"}}),
    (DQN, {"exploration": {**LOG, "ladder_min": 0.001}}),
    (DQN, {"evaluation_eps": 0}),
    (DQN, {"dueling": True, "policy_kwargs": {"net_arch": [8], "scale_trunk_gradient": True, "layer_norm": True}}),
    (CategoricalDQN, {"n_atoms": 2, "v_min": 0, "v_max": 1e-3, "priority": "cross_entropy"}),
    (QRDQN, {"n_quantiles": 1, "kappa": 0}),
    (IQN, {"n_taus": 1, "n_target_taus": 1, "n_policy_taus": 1, "n_cosines": 1, "risk": "power -2"}),
    (FQF, {"n_fractions": 2, "fraction_learning_rate": 0, "entropy_coef": 1}),
    (PQN, {"n_steps": 1, "batch_size": 1, "n_epochs": 1, "q_lambda": 0}),
]


@pytest.mark.parametrize(("algorithm", "kwargs"), ALLOWED)
def test_values_that_are_allowed(algorithm: Any, kwargs: dict[str, Any]) -> None:
    model = quick(algorithm=algorithm, **kwargs).learn(40)
    assert model._n_updates > 0
    assert np.isfinite(model.learner.flat.numpy()).all()
