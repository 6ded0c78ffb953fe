"""Actor-critic network: features, one tower for the policy and one for the value, and their heads."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.binned import BinnedLinear, Bins, Classes
from sb_dqn.nn.heads.distributions import ActionDistribution
from sb_dqn.nn.heads.policy_heads import ActionHead
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.recurrent import FEATURES, VALUE_FEATURES, RecurrentConfig, RecurrentLayer
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.mlp import HiddenLayers
from sb_dqn.policies.base import keep_state_names
from sb_dqn.spaces import Actions


class ActorCriticOutput(NamedTuple):
    """Policy and value of N observations."""

    policy: ActionDistribution
    """Distribution over actions."""
    value: Tensor
    """`[N]` float32."""
    classes: Classes | None = None
    """The value as logits `[N, Z]` of bins. If None, the value is not learned by classification."""


@dataclass(frozen=True)
class TowersConfig:
    """Hidden layers between features and heads.

    Args:
        pi: widths of the policy's layers.
        vf: widths of the value's layers.
        activation_fn: activation after each layer.
        layer_norm: layer norm before each activation.
    """

    pi: list[int]
    vf: list[int]
    activation_fn: type[nn.Module] = nn.Tanh
    layer_norm: bool = False

    @property
    def layers(self) -> Callable[..., HiddenLayers]:
        """Makes hidden layers from the width of their input and their own widths."""
        return partial(HiddenLayers, activation_fn=self.activation_fn, layer_norm=self.layer_norm)

    def make(self, pi_features: int, vf_features: int) -> tuple[HiddenLayers, HiddenLayers]:
        """Returns the towers of policy and value, modules with `out_features`, for features of these widths."""
        return self.layers(pi_features, self.pi), self.layers(vf_features, self.vf)


class ActorCriticNetwork(nn.Module):
    """Policy and value of an observation; a recurrent network has encoders and recurrent layers after the features.

    Args:
        features: module from observations to `[N, features_dim]`.
        value_features: features of the value. If None, the value reads the features of the policy.
        towers: hidden layers.
        make_head: function that makes the policy's head from the width of the last layer.
        ortho_init: orthogonal weights and zero biases: gain 0.01 for the policy's head, 1 for the value's, sqrt(2) for
            the other layers.
        actions: the action space.
        recurrent: recurrent layers. If None, the network is feed-forward.
        value_bins: settings of a value by classification. If None, the value is one number.
    """

    def __init__(
        self,
        features: Features,
        value_features: Features | None,
        towers: TowersConfig,
        make_head: Callable[[int], ActionHead],
        ortho_init: bool,
        actions: Actions,
        recurrent: RecurrentConfig | None = None,
        value_bins: Bins | None = None,
    ) -> None:
        super().__init__()
        self.num_actions = actions.num_actions
        self.features: Any = features
        self.value_features: Any = value_features
        self.shares_features = value_features is None if recurrent is None else recurrent.shared
        """True if policy and value read the same features, recurrent ones if there are any."""
        widths = [features.features_dim, (value_features or features).features_dim]
        self.recurrent_layers: nn.ModuleList | None = None
        if recurrent is not None:
            branches = widths[:1] if recurrent.shared else widths
            extra = recurrent.num_inputs(actions.shape, actions.num_actions)
            encoders = [towers.layers(width, recurrent.encoder_arch) for width in branches]
            self.encoders = nn.ModuleList(encoders)
            with_state = encoders if recurrent.critic else encoders[:1]
            self.recurrent_layers = nn.ModuleList(
                RecurrentLayer(encoder.out_features + extra, recurrent) for encoder in with_state
            )
            widths = [recurrent.hidden_size, recurrent.hidden_size if recurrent.critic else encoders[1].out_features]
        self.policy_tower, self.value_tower = towers.make(widths[0], widths[1])
        self.action_head: ActionHead = make_head(self.policy_tower.out_features)
        width = self.value_tower.out_features
        self.value_head = nn.Linear(width, 1) if value_bins is None else BinnedLinear(width, 1, value_bins)
        if ortho_init:
            self._make_orthogonal()
        if recurrent is not None:
            behind = {name: f"answer.{name}" for name in ("policy_tower", "value_tower", "action_head", "value_head")}
            first = {"features": "features.0", "value_features": "features.1", "recurrent_layers": "memories"}
            keep_state_names(self, {**first, **behind})

    def clipped_apart(self) -> list[nn.Parameter]:
        """Returns the parameters whose gradient is bounded by its own norm: those that only a value by classification has.

        The gradient of its cross-entropy stays large where that of a squared error gets small. In one norm with it, the bound would
        leave the policy hardly any step.
        """
        if not isinstance(self.value_head, BinnedLinear):
            return []
        own = [self.value_tower, self.value_head, *([] if self.value_features is None else [self.value_features])]
        if self.recurrent_layers is not None and not self.shares_features:
            own += [self.encoders[1], *self.recurrent_layers[1:]]
        return [parameter for part in own for parameter in part.parameters()]

    def _make_orthogonal(self) -> None:
        """Initializes all linear layers and convolutions with orthogonal weights and biases of 0."""
        gain = math.sqrt(2.0)
        recurrent = self.recurrent_layers is not None
        encoders = [self.encoders] if recurrent else []
        first = [(part, gain) for part in (self.features, self.value_features, *encoders) if part is not None]
        behind = [
            (self.policy_tower, gain), (self.value_tower, gain), (self.action_head, 0.01),
            (self.value_head, 0.0 if isinstance(self.value_head, BinnedLinear) else 1.0),
        ]  # fmt: skip
        # the order of the draws is part of what a seed determines
        for part, part_gain in behind + first if recurrent else first + behind:
            for module in part.modules():
                if isinstance(module, (nn.Linear, nn.Conv2d)):
                    nn.init.orthogonal_(module.weight, part_gain)
                    if module.bias is not None:
                        nn.init.zeros_(module.bias)

    def forward(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> ActorCriticOutput:
        """Returns distribution and value.

        Args:
            obs: observations, a flat dict of `[N, *shape]`; for a recurrent network its recurrent features from `unroll`.
            mask: `[N, (D,) A]` bool, legal actions. If None, all actions are legal.
        """
        features = self._policy_features(obs)
        value_features = features if self.shares_features else self._value_features(obs)
        policy = self.action_head(self.policy_tower(features), mask)
        if not isinstance(self.value_head, BinnedLinear):
            return ActorCriticOutput(policy, self._value(value_features))
        logits, readout = self.value_head.classes(self.value_tower(value_features).float())
        classes = Classes(logits.squeeze(-2), readout)
        return ActorCriticOutput(policy, classes.mean, classes)

    def policy(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> ActionDistribution:
        """Returns the distribution only; see `forward`."""
        return self.action_head(self.policy_tower(self._policy_features(obs)), mask)  # type: ignore[no-any-return]  # nn.Module

    def value(self, obs: dict[str, Tensor]) -> Tensor:
        """Returns the value only, `[N]` float32; see `forward`."""
        return self._value(self._policy_features(obs) if self.shares_features else self._value_features(obs))

    def _policy_features(self, obs: dict[str, Tensor]) -> Tensor:
        return obs[FEATURES] if self.recurrent_layers is not None else self.features(obs)

    def _value_features(self, obs: dict[str, Tensor]) -> Tensor:
        if self.recurrent_layers is not None:
            return obs[VALUE_FEATURES]
        assert self.value_features is not None
        return self.value_features(obs)  # type: ignore[no-any-return]  # nn.Module.__call__

    def _value(self, features: Tensor) -> Tensor:
        return self.value_head(self.value_tower(features).float()).squeeze(-1)  # type: ignore[no-any-return]  # nn.Module

    def unroll(
        self,
        obs: dict[str, Tensor],
        action: Tensor | None,
        reward: Tensor | None,
        state: Tensor,
        begins: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Returns the recurrent features of S steps of N lanes, `[S * N, H]` by name, and the last state `[N, P]`.

        Args:
            obs: flat dict of `[S * N, *shape]`, time-major.
            action: `[S * N, ...]`, previous actions; None if they are no input.
            reward: `[S * N]`, previous rewards; None if they are no input.
            state: `[N, P]` before the first step.
            begins: `[S, N]` bool, True zeroes the state before that step. If None, S is 1 and no episode begins.
        """
        assert self.recurrent_layers is not None
        features = [self.features(obs)]
        if self.value_features is not None:
            features.append(self.value_features(obs))
        outputs = {}
        states = []
        names = (FEATURES, VALUE_FEATURES)
        for i, before in enumerate(state.chunk(len(self.recurrent_layers), -1)):
            layer: Any = self.recurrent_layers[i]
            x = self.encoders[i](features[i % len(features)]).float()
            x = layer.config.inputs(x, action, reward, self.num_actions)
            x = x.view(-1, state.shape[0], x.shape[-1])
            out, after = layer(x, before) if begins is None else layer.unroll(x, before, begins)
            outputs[names[i]] = out.flatten(0, 1)
            states.append(after)
        if len(states) < len(self.encoders):  # the value has no recurrent layer
            outputs[VALUE_FEATURES] = self.encoders[1](features[-1]).float()
        return outputs, torch.cat(states, -1)

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """Returns None, since the network draws no random numbers while learning."""
        return None

    def twin(self, dtype: torch.dtype) -> ActorCriticNetwork:
        """Returns a copy whose layers compute in `dtype`, except for shared float32 ones.

        The heads are shared, and everything from the recurrent layers on.
        """
        twin = copy.deepcopy(self).to(dtype)
        for part in (twin.features, twin.value_features):
            if part is not None:
                part.dtype = dtype
        shared = ["action_head", "value_head"]
        if self.recurrent_layers is not None:
            shared += ["recurrent_layers", "policy_tower", "value_tower"]
        for name in shared:
            setattr(twin, name, getattr(self, name))
        return twin
