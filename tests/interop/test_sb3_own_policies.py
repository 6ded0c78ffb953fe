"""Policy classes of users under `sb_dqn.sb3`, and the parts of policies that programs call."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError

room: Any = import_module("sb_dqn.sb3")
policies: Any = import_module("sb_dqn.sb3.common.policies")
dqn_policies: Any = import_module("sb_dqn.sb3.dqn.policies")
contrib: Any = import_module("sb_dqn.sb3.ppo_recurrent.policies")
SPACES = gymnasium.spaces


class TwoHeads(nn.Module):
    """Layers of a user, with one that both paths share."""

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = latent, 5
        self.shared = nn.Linear(width, 7)
        self.policy_net = nn.Sequential(nn.Linear(7, latent), nn.ReLU())
        self.value_net = nn.Sequential(nn.Linear(7, 5), nn.Tanh())

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        return self.policy_net(self.shared(features))

    def forward_critic(self, features: Tensor) -> Tensor:
        return self.value_net(self.shared(features))


class OwnPolicy(policies.ActorCriticPolicy):  # type: ignore[misc]  # a class at run time
    """The policy of the page "Custom policies" of Stable-Baselines3, with a keyword of its own."""

    def __init__(
        self, observation_space: Any, action_space: Any, lr_schedule: Any, *args: Any, latent: int = 6, **kwargs: Any
    ):
        kwargs["ortho_init"] = False
        self.latent = latent
        super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = TwoHeads(self.features_dim, self.latent)


class RecurrentOwnPolicy(contrib.RecurrentActorCriticPolicy):  # type: ignore[misc]  # a class at run time
    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = TwoHeads(self.lstm_output_dim, 6)


class DeepQPolicy(dqn_policies.DQNPolicy):  # type: ignore[misc]  # a class at run time
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "net_arch": [9, 8, 7], "activation_fn": nn.Tanh})


class Doubles(policies.ActorCriticPolicy):  # type: ignore[misc]  # a class at run time
    """Values in a rollout are a multiple of those of the network."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.factor = 2.0

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        actions, values, log_prob = super().forward(obs, deterministic)
        return actions, self.factor * values, log_prob

    def predict_values(self, obs: Any) -> Tensor:
        return super().predict_values(obs) + 3


@pytest.mark.parametrize(("name", "env"), [("PPO", "CartPole-v1"), ("A2C", "Pendulum-v1")])
def test_the_layers_of_an_own_policy_class_are_trained_and_saved(name: str, env: str, tmp_path: Path) -> None:
    algorithm = getattr(room, name)
    model = algorithm(OwnPolicy, env, n_steps=32, seed=0, policy_kwargs={"latent": 11})
    assert isinstance(model.policy, OwnPolicy)
    own = model.policy.mlp_extractor
    assert type(own) is TwoHeads
    assert (model.policy.action_net.in_features, model.policy.value_net.in_features) == (11, 5)
    before = [parameter.detach().clone() for parameter in own.parameters()]
    assert sum(parameter.numel() for parameter in model.policy.parameters()) == len(
        nn.utils.parameters_to_vector({id(each): each for each in model.policy.parameters()}.values())
    )
    model.learn(64)
    assert not any(torch.equal(*pair) for pair in zip(before, own.parameters(), strict=True))
    obs = torch.as_tensor(model.get_env().reset())
    features = model.policy.extract_features(obs)
    with torch.no_grad():
        torch.testing.assert_close(
            model.policy.predict_values(obs), model.policy.value_net(own.forward_critic(features))
        )
        outputs = model.policy.action_net(own.forward_actor(features))
        distribution = model.policy.get_distribution(obs).distribution
        expected = distribution.mean if name == "A2C" else distribution.logits
        torch.testing.assert_close(expected, outputs if name == "A2C" else outputs.log_softmax(-1))
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model")
    assert isinstance(loaded.policy, OwnPolicy)
    np.testing.assert_array_equal(*(each.predict(obs.numpy(), deterministic=True)[0] for each in (model, loaded)))


def test_keywords_that_a_class_sets_are_those_of_the_network() -> None:
    model = room.DQN(DeepQPolicy, "CartPole-v1", policy_kwargs={"layer_norm": True}, learning_starts=10)
    assert [layer.out_features for layer in model.q_net.modules() if isinstance(layer, nn.Linear)] == [9, 8, 7, 2]
    assert len([layer for layer in model.q_net.modules() if isinstance(layer, nn.LayerNorm)]) == 3
    assert any(isinstance(layer, nn.Tanh) for layer in model.q_net.modules())
    model.learn(50)
    recurrent = room.RecurrentPPO(RecurrentOwnPolicy, "CartPole-v1", n_steps=16, policy_kwargs={"lstm_hidden_size": 12})
    assert recurrent.learn(32).policy.mlp_extractor.shared.in_features == 12


@pytest.mark.parametrize(("name", "env"), [("PPO", "CartPole-v1"), ("A2C", "Pendulum-v1")])
def test_forward_of_an_own_policy_class_is_called_while_acting(name: str, env: str, tmp_path: Path) -> None:
    model = getattr(room, name)(Doubles, env, n_steps=32, seed=0)
    assert isinstance(model.policy, Doubles)
    obs = torch.as_tensor(model.get_env().reset())
    with torch.no_grad():
        actions, values, log_prob = model.policy(obs, deterministic=True)
        plain = model.policy.net({"obs": obs})
        torch.testing.assert_close(values, 2 * plain.value[:, None])
        torch.testing.assert_close(model.policy.predict_values(obs), plain.value[:, None] + 3)
        torch.testing.assert_close(model.policy.evaluate_actions(obs, actions)[1], log_prob)
    rollouts: list[Any] = []

    def keep(locals_: dict[str, Any], _: Any) -> bool:
        buffer = locals_["self"].rollout_buffer
        if buffer.full:
            stored = torch.as_tensor(buffer.observations[:, 0])
            with torch.no_grad():
                expected = model.policy.factor * model.policy.net({"obs": stored}).value
            rollouts.append((buffer.values[:, 0], expected.numpy(), buffer.returns[-1, 0], buffer.rewards[-1, 0]))
        return True

    if name == "A2C":  # before its update, the networks are those that acted
        base: Any = import_module("sb_dqn.sb3.common.callbacks").BaseCallback
        body = {"_on_step": lambda self: True, "_on_rollout_end": lambda self: keep({"self": self.model}, None)}
        model.learn(64, callback=type("Keeps", (base,), body)())
        model.policy.factor = 7.0  # as a callback may change it
        model.learn(32, callback=type("Keeps", (base,), body)())
        assert len(rollouts) == 3
        for values, expected, *_ in rollouts:
            np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    assert model.learn(64).num_timesteps == 64
    model.save(tmp_path / "model")
    loaded = getattr(room, name).load(tmp_path / "model")
    assert isinstance(loaded.policy, Doubles)
    np.testing.assert_array_equal(*(each.predict(obs.numpy(), deterministic=True)[0] for each in (model, loaded)))


def test_what_a_policy_class_cannot_change_is_named() -> None:
    loss = type("Loss", (policies.ActorCriticPolicy,), {"forward": None, "evaluate_actions": lambda self, obs: None})
    with pytest.raises(
        ConfigurationError, match="Loss must override __init__, .*, predict_values only, got evaluate_actions,"
    ):
        room.PPO(loss, "CartPole-v1")
    recurrent = type("Recurrent", (contrib.RecurrentActorCriticPolicy,), {"forward": lambda self, obs: None})
    with pytest.raises(ConfigurationError, match="must override __init__, _build_mlp_extractor only, got forward,"):
        room.RecurrentPPO(recurrent, "CartPole-v1")
    with pytest.raises(ConfigurationError, match="use_sde and squash_output must be False with Doubles"):
        room.PPO(Doubles, "Pendulum-v1", use_sde=True)

    class Further(Doubles):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.extra = nn.Linear(2, 2)

    with pytest.raises(
        ConfigurationError, match="the layers of Further must be built in .* got extra, which would not"
    ):
        room.PPO(Further, "CartPole-v1")

    class Optimizer(policies.ActorCriticPolicy):  # type: ignore[misc]  # a class at run time
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, optimizer_class=torch.optim.SGD, **kwargs)

    with pytest.raises(ConfigurationError, match=r"must be given in policy_kwargs, got SGD with \{.*\} in Optimizer"):
        room.PPO(Optimizer, "CartPole-v1")

    class Half(nn.Linear):
        latent_dim_pi = latent_dim_vf = 3

    class Halves(policies.ActorCriticPolicy):  # type: ignore[misc]  # a class at run time
        def _build_mlp_extractor(self) -> None:
            self.mlp_extractor = Half(self.features_dim, 3)

    with pytest.raises(
        ConfigurationError, match="mlp_extractor of Halves must be a module with .* without forward_actor"
    ):
        room.PPO(Halves, "CartPole-v1")


class Bits(gymnasium.Env[Any, Any]):
    """An environment whose actions are of a given space."""

    observation_space = SPACES.Box(-1, 1, (3,))

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(3, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (SPACES.Discrete(4), "CategoricalDistribution"),
        (SPACES.MultiDiscrete([2, 3]), "MultiCategoricalDistribution"),
        (SPACES.MultiBinary(3), "BernoulliDistribution"),
        (SPACES.Box(-2, 2, (2,)), "DiagGaussianDistribution"),
    ],
)
def test_distributions_are_those_of_their_classes(space: Any, kind: str) -> None:
    model = room.PPO("MlpPolicy", Bits(space), n_steps=8, policy_kwargs={"ortho_init": False})
    obs = torch.randn(5, 3)
    found = model.policy.get_distribution(obs)
    assert type(found).__name__ == kind
    actions = found.get_actions()
    with torch.no_grad():
        _, log_prob, entropy = model.policy.evaluate_actions(obs, actions)
        torch.testing.assert_close(found.log_prob(actions), log_prob)
        torch.testing.assert_close(found.entropy(), entropy)
    torch.testing.assert_close(found.mode(), model.policy(obs, deterministic=True)[0].to(found.mode().dtype))


def test_a_masked_distribution_has_no_illegal_actions() -> None:
    env = import_module("sb_dqn.sb3.common.wrappers").ActionMasker(Bits(SPACES.Discrete(4)), lambda _: np.ones(4, bool))
    model = room.MaskablePPO("MlpPolicy", env, n_steps=8)
    masks = np.array([[True, False, True, False], [False, False, False, True]])
    found = model.policy.get_distribution(torch.randn(2, 3), action_masks=masks)
    assert (found.distribution.probs > 1e-6).tolist() == masks.tolist()


@pytest.mark.parametrize("shared", [False, True])
def test_actor_and_critics_are_called_as_theirs(shared: bool) -> None:
    model = room.SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"share_features_extractor": shared})
    obs = torch.randn(6, 3)
    with torch.no_grad():
        actions, log_prob = model.actor.action_log_prob(obs)
        assert (actions.shape, log_prob.shape) == ((6, 1), (6,))
        assert actions.abs().max() <= 1
        mean, log_std, further = model.actor.get_action_dist_params(obs)
        their_class: Any = import_module("stable_baselines3.common.distributions").SquashedDiagGaussianDistribution
        theirs = their_class(1).proba_distribution(mean, log_std)
        torch.testing.assert_close(
            theirs.log_prob(actions), log_prob, atol=1e-3, rtol=1e-3
        )  # through the inverse of tanh
        best = model.actor(obs, deterministic=True)
        torch.testing.assert_close(best, mean.tanh())
        np.testing.assert_allclose(model.predict(obs.numpy(), deterministic=True)[0], 2 * best, rtol=1e-4, atol=1e-6)
        values = model.critic(obs, actions)
        assert [value.shape for value in values] == [(6, 1), (6, 1)]
        torch.testing.assert_close(model.critic.q1_forward(obs, actions), values[0])
        torch.testing.assert_close(model.critic_target(obs, actions), values)
        assert not torch.equal(values[0], values[1])
    assert further == {}
    assert (model.actor.features_extractor is model.critic.features_extractor) is shared


def test_quantiles_have_the_values_as_their_mean() -> None:
    model = room.QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs={"n_quantiles": 25})
    obs = torch.randn(3, 4)
    with torch.no_grad():
        quantiles = model.quantile_net(obs)
        assert quantiles.shape == (3, 25, 2)
        torch.testing.assert_close(quantiles.mean(1), model.policy.q_net(obs))
        torch.testing.assert_close(model.quantile_net_target(obs), quantiles)
