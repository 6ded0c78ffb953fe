"""Policies for every space, by alias or class, with the keywords that users give."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.core.arguments import constructor_arguments
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.nn import BaseFeaturesExtractor, FlattenExtractor
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.norms import SpectralLinear
from sb_dqn.policies import (
    ACTOR_CRITIC_POLICIES,
    ALGORITHM_ARGUMENTS,
    VALUE_POLICIES,
    CnnPolicy,
    MlpPolicy,
    MultiInputPolicy,
    QPolicy,
    policy_class,
    split_policy_kwargs,
)
from sb_dqn.policies.q_network import QNetwork
from sb_dqn.sb3_names import POLICY_ATTRIBUTES
from sb_dqn.spaces import flatten_observation, flatten_space, leaf_dtype

ACTIONS = spaces.Discrete(3, start=5)
VECTOR = spaces.Box(-np.inf, np.inf, (4,), np.float32)
PICTURE = spaces.Box(0, 255, (1, 36, 36), np.uint8)
NESTED = spaces.Dict({"camera": spaces.Dict({"left": PICTURE}), "place": VECTOR, "mode": spaces.Discrete(3)})
SPACES: dict[str, tuple[str, spaces.Space[Any]]] = {
    "vector": ("MlpPolicy", VECTOR),
    "float64": ("MlpPolicy", spaces.Box(-1, 1, (3,), np.float64)),
    "number": ("MlpPolicy", spaces.Box(-1, 1, (), np.float32)),
    "matrix": ("MlpPolicy", spaces.Box(-1, 1, (2, 3), np.float32)),
    "integers": ("MlpPolicy", spaces.Box(-5, 5, (2,), np.int32)),
    "chw": ("CnnPolicy", PICTURE),
    "hwc": ("CnnPolicy", spaces.Box(0, 255, (36, 40, 3), np.uint8)),
    "discrete": ("MlpPolicy", spaces.Discrete(4, start=-2)),
    "multi discrete": ("MlpPolicy", spaces.MultiDiscrete([3, 2])),
    "multi binary": ("MlpPolicy", spaces.MultiBinary(3)),
    "dict": ("MultiInputPolicy", spaces.Dict({"place": VECTOR, "bits": spaces.MultiBinary(2)})),
    "nested": ("MultiInputPolicy", NESTED),
}


def observations(space: spaces.Space[Any], count: int = 3) -> dict[str, Tensor]:
    """As the replay hands them over."""
    flat = [flatten_observation(space.sample(), ()) for _ in range(count)]
    return {
        key: torch.from_numpy(np.stack([one[key] for one in flat]).astype(leaf_dtype(leaf)))
        for key, leaf in flatten_space(space).items()
    }


@pytest.mark.parametrize("name", SPACES)
def test_every_space(name: str) -> None:
    alias, space = SPACES[name]
    policy = VALUE_POLICIES[alias](space, ACTIONS)
    space.seed(0)
    obs = observations(space)
    q = policy.q_net(obs).q
    assert q.shape == (3, 3)
    assert q.dtype == torch.float32
    assert torch.isfinite(q).all()
    greedy = policy.greedy(obs)
    assert greedy.dtype == torch.int64
    assert greedy.tolist() == q.argmax(-1).tolist()  # 0-based, whatever the action space's start
    torch.testing.assert_close(policy.q_net_target(obs).q, q, rtol=0, atol=0)
    low = policy.q_net.twin(torch.bfloat16)
    torch.testing.assert_close(low(obs).q, q, rtol=0.05, atol=0.05)


def test_low_precision_does_not_drown_small_differences_between_actions() -> None:
    net = MlpPolicy(VECTOR, ACTIONS).q_net
    with torch.no_grad():
        net.head.outputs.of_actions.bias.fill_(-1.0)  # there bfloat16 knows steps of 1/256 or 1/128
        net.head.outputs.of_actions.weight.mul_(0.01)
    obs = observations(VECTOR)
    exact, low = net(obs).q, net.twin(torch.bfloat16)(obs).q
    assert (
        exact - exact.to(torch.bfloat16).float()
    ).abs().max() > 5e-4  # what rounding the values themselves would cost
    assert (exact - low).abs().max() < 5e-5


def test_the_target_is_a_net_of_its_own_that_does_not_learn() -> None:
    policy = MlpPolicy(VECTOR, ACTIONS)
    mine = {parameter.data_ptr() for parameter in policy.q_net.parameters()}
    assert not mine & {parameter.data_ptr() for parameter in policy.q_net_target.parameters()}
    assert not any(parameter.requires_grad for parameter in policy.q_net_target.parameters())


def test_default_layers() -> None:
    assert MlpPolicy(VECTOR, ACTIONS).net_arch == [64, 64]
    assert CnnPolicy(PICTURE, ACTIONS).net_arch == []
    assert MultiInputPolicy(NESTED, ACTIONS).net_arch == [64, 64]


def test_layers_and_activation() -> None:
    policy = MlpPolicy(VECTOR, ACTIONS, net_arch=[8, 5], activation_fn=nn.Tanh)
    hidden = [layer for part in (policy.q_net.torso, policy.q_net.last) for layer in part.modules()]
    assert [str(layer) for layer in hidden if not list(layer.children())] == [
        "Linear(in_features=4, out_features=8, bias=True)",
        "Tanh()",
        "Linear(in_features=8, out_features=5, bias=True)",
        "Tanh()",
    ]
    linear = MlpPolicy(VECTOR, ACTIONS, net_arch=[])
    assert sum(parameter.numel() for parameter in linear.q_net.parameters()) == 4 * 3 + 3


class Narrow(FlattenExtractor):
    """Says another width than it has."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self._features_dim = 7


class Doubler(BaseFeaturesExtractor):
    """A user's own: twice each number, and as many zeros as are asked for."""

    def __init__(self, observation_space: spaces.Space[Any], zeros: int = 0) -> None:
        super().__init__(observation_space, 4 + zeros)
        self.zeros = zeros

    def forward(self, observation: Tensor) -> Tensor:
        return nn.functional.pad(2 * observation, (0, self.zeros))


def test_an_extractor_of_ones_own() -> None:
    policy = MlpPolicy(VECTOR, ACTIONS, features_extractor_class=Doubler, features_extractor_kwargs={"zeros": 2})
    assert policy.q_net.features.features_dim == 6
    x = torch.randn(2, 4)
    assert policy.q_net.features({"obs": x}).tolist() == nn.functional.pad(2 * x, (0, 2)).tolist()


def test_cnn_policy_takes_vectors_with_an_extractor_for_them() -> None:
    policy = CnnPolicy(VECTOR, ACTIONS, features_extractor_class=Doubler)
    assert policy.greedy({"obs": torch.zeros(2, 4)}).shape == (2,)


def test_images_in_one_row_if_one_insists() -> None:
    policy = CnnPolicy(PICTURE, ACTIONS, features_extractor_class=FlattenExtractor, net_arch=[4])
    assert policy.q_net.features.features_dim == 36 * 36


class Own(QPolicy):
    """A user's own policy: another keyword, another net."""

    def __init__(self, observation_space: Any, action_space: Any, bonus: float = 0.0, **kwargs: Any) -> None:
        self.bonus = bonus
        super().__init__(observation_space, action_space, **kwargs)

    def make_q_net(self) -> QNetwork:
        net = super().make_q_net()
        nn.init.constant_(net.head.outputs.of_actions.bias, self.bonus)
        return net


def test_a_policy_of_ones_own() -> None:
    kwargs, optimizer = split_policy_kwargs(Own, {"bonus": 7.0, "net_arch": [], "optimizer_class": torch.optim.SGD})
    policy = policy_class(Own, VALUE_POLICIES, QPolicy)(VECTOR, ACTIONS, **kwargs)
    assert policy.q_net({"obs": torch.zeros(1, 4)}).q.tolist() == [[7.0, 7.0, 7.0]]
    assert optimizer == {"optimizer_class": torch.optim.SGD}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("MlpPolitics", r"policy must be one of .*'CnnPolicy'.*, got 'MlpPolitics'.*Did you mean 'MlpPolicy'"),
        ("mlppolicy", "Did you mean 'MlpPolicy'"),
        (nn.Linear, "must be one of .* or a subclass of QPolicy, got <class"),
        (None, "subclass of QPolicy"),
        (3, "subclass of QPolicy"),
    ],
)
def test_what_is_no_policy(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        policy_class(given, VALUE_POLICIES, QPolicy)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"net_arc": [3]}, "keys of policy_kwargs must be .* got 'net_arc'.*Did you mean 'net_arch'"),
        ({"optimizer": "adam"}, "keys of policy_kwargs must be .* got 'optimizer'.*Did you mean 'optimizer_"),
        ({"observation_space": VECTOR}, "keys of policy_kwargs must be .* got 'observation_space'"),
        (7, "policy_kwargs must be a dict.* got 7"),
        ("net_arch", "policy_kwargs must be a dict.* got 'net_arch'"),
        ([64, 64], "policy_kwargs must be a dict.* got .*"),
    ],
)
def test_unknown_keywords(kwargs: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        split_policy_kwargs(MlpPolicy, kwargs)


class NoWidth(nn.Module):
    """Not an extractor: says no `features_dim`."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("policy", "space", "kwargs", "message"),
    [
        (CnnPolicy, VECTOR, {}, "must be one image .* for CnnPolicy, got .* Use 'MlpPolicy' for vectors"),
        (CnnPolicy, NESTED, {}, "must be one image .* for CnnPolicy.*'MultiInputPolicy' for a Dict"),
        (CnnPolicy, spaces.Box(0, 255, (1, 2, 20), np.uint8), {}, "images must be .* or larger"),
        (
            MultiInputPolicy,
            VECTOR,
            {},
            "observation_space must be a Dict for MultiInputPolicy.*'MlpPolicy' for vectors",
        ),
        (MlpPolicy, VECTOR, {"net_arch": "64"}, r"net_arch.. must be a list of widths, got"),
        (MlpPolicy, VECTOR, {"net_arch": 64}, r"net_arch.. must be a list of widths, got"),
        (MlpPolicy, VECTOR, {"net_arch": {"pi": [3]}}, r"net_arch.. must be a list of widths, got"),
        (MlpPolicy, VECTOR, {"net_arch": [64, 0]}, r"net_arch.* must be .* got 0"),
        (MlpPolicy, VECTOR, {"net_arch": [64, 1.5]}, r"net_arch.* must be .* got 1.5"),
        (MlpPolicy, VECTOR, {"activation_fn": "relu"}, r"activation_fn.. must be a class of modules, got 'relu'"),
        (MlpPolicy, VECTOR, {"activation_fn": nn.ReLU()}, r"activation_fn.. must be a class of modules, got"),
        (MlpPolicy, VECTOR, {"activation_fn": torch.tanh}, r"activation_fn.. must be a class of modules, got"),
        (MlpPolicy, VECTOR, {"activation_fn": nn.functional.relu}, r"activation_fn.. must be a class of modules, got"),
        (MlpPolicy, VECTOR, {"activation_fn": dict}, r"activation_fn.. must be a class of modules, got"),
        (
            MlpPolicy,
            VECTOR,
            {"features_extractor_class": Narrow},
            r"output of Narrow must have the shape .*, got \[1, 4\] for N=1 and features_dim=7",
        ),
        (MlpPolicy, VECTOR, {"channels": "middle"}, r"channels.* must be one of .* got 'middle'"),
        (MlpPolicy, VECTOR, {"normalize_images": "no"}, r"normalize_images.* must be True or False, got 'no'"),
        (
            MlpPolicy,
            VECTOR,
            {"features_extractor_class": "cnn"},
            "features_extractor_class.*must be a subclass of BaseFeaturesExtractor, got",
        ),
        (MlpPolicy, VECTOR, {"features_extractor_class": NoWidth}, "features_extractor_class.*features_dim"),
        (
            MlpPolicy,
            VECTOR,
            {"features_extractor_class": Doubler, "features_extractor_kwargs": {"ones": 1}},
            "features_extractor_kwargs must be arguments of Doubler, .*got .*ones",
        ),
        (MlpPolicy, VECTOR, {"features_extractor_kwargs": 3}, "features_extractor_kwargs"),
    ],
)
def test_what_a_policy_refuses(policy: type[QPolicy], space: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        policy(space, ACTIONS, **kwargs)


@pytest.mark.parametrize(
    "space", [spaces.Tuple([VECTOR]), spaces.Text(3), spaces.Sequence(VECTOR), spaces.Dict({}), spaces.Box(0, 1, (0,))]
)
def test_observation_spaces_that_are_not_supported(space: Any) -> None:
    with pytest.raises(SpaceError, match="must be Box, Discrete|at least one entry|no axis of length 0"):
        MlpPolicy(space, ACTIONS)


@pytest.mark.parametrize("space", [VECTOR, spaces.MultiDiscrete(np.array([[2, 2]])), spaces.Text(3)])
def test_action_spaces_that_are_not_supported(space: Any) -> None:
    with pytest.raises(SpaceError, match=r"must be Discrete\(n, start=...\)"):
        MlpPolicy(VECTOR, space)


def test_spectral_norm_holds_before_a_memory_too() -> None:
    policy = VALUE_POLICIES["MlpLstmPolicy"](VECTOR, ACTIONS, spectral_norm=True)
    hidden = [layer for name, layer in policy.q_net.named_modules() if isinstance(layer, Linear) and "head" not in name]
    assert [type(layer) for layer in hidden] == [SpectralLinear, SpectralLinear]


class PartlyFrozen(FlattenExtractor):
    """With two norms, of which one is not to move."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self.moves, self.stays = nn.BatchNorm1d(self.features_dim), nn.BatchNorm1d(self.features_dim).eval()

    def forward(self, observation: Tensor) -> Tensor:
        return self.stays(self.moves(super().forward(observation)))


def test_asking_for_the_width_moves_nothing() -> None:
    extractor: Any = MlpPolicy(VECTOR, ACTIONS, features_extractor_class=PartlyFrozen).q_net.features.extractor
    assert (extractor.moves.training, extractor.stays.training) == (True, False)
    assert extractor.moves.num_batches_tracked == 0


def test_names_of_stable_baselines3_are_answered_with_what_stands_for_them() -> None:
    policy: Any = MlpPolicy(VECTOR, ACTIONS)
    for name in POLICY_ATTRIBUTES.keys() - {"q_net", "q_net_target"}:
        with pytest.raises(
            AttributeError, match=re.escape(f"MlpPolicy has no attribute {name!r}. {POLICY_ATTRIBUTES[name]}")
        ):
            getattr(policy, name)
    with pytest.raises(AttributeError, match="no attribute 'q_nett'.$"):
        _ = policy.q_nett
    assert getattr(policy, "device", None) is None
    features = policy.q_net.features
    assert features({"obs": torch.zeros(2, 4)}).shape == (2, features.features_dim)


def test_the_nets_of_an_actor_critic_say_what_the_methods_of_theirs_say() -> None:
    policy: Any = ACTOR_CRITIC_POLICIES["MlpPolicy"](VECTOR, spaces.Discrete(3))
    output = policy.net({"obs": torch.zeros(2, 4)})
    assert output.value.shape == (2,)
    assert output.policy.log_prob(torch.tensor([0, 2])).shape == (2,)
    assert output.policy.entropy().shape == (2,)


def test_a_bare_tensor_is_refused_by_the_nets() -> None:
    policy = MlpPolicy(VECTOR, ACTIONS)
    with pytest.raises(
        SpaceError,
        match=r"must be a flat dict .* keys \['obs'\], got a tensor of shape \[1, 4\]. Call net\({'obs': tensor}\)",
    ):
        policy.q_net(torch.zeros(1, 4))


@pytest.mark.parametrize("name", ALGORITHM_ARGUMENTS)
def test_arguments_of_algorithms_are_sent_to_the_constructor(name: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"policy_kwargs must not have '{name}', an argument of the algorithm's constructor, got it. Pass it there",
    ):
        split_policy_kwargs(MlpPolicy, {name: 1})
    assert any(name in constructor_arguments(algorithm) for algorithm in ALGORITHMS.values())
