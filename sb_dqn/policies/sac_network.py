"""Networks of soft actor-critic: critics, actor, and the entropy temperature."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sb_dqn.losses.soft_actor_critic import expected_soft_value, soft_value
from sb_dqn.nn.heads.binned import BinnedLinear, Bins, Classes
from sb_dqn.nn.heads.policy_heads import ActionHead, CategoricalHead, SoftHead
from sb_dqn.nn.heads.state_dependent import SoftStateDependentHead
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.mlp import HiddenLayers
from sb_dqn.spaces import Actions, BoxActions
from sb_dqn.types import Batch, Settings


@dataclass(frozen=True)
class Temperature:
    """Entropy temperature alpha, in units of reward per nat.

    Args:
        initial: initial value, above 0, or from 0 if the temperature is not learned.
        learned: adapt alpha to a target entropy.
    """

    initial: float = 1.0
    learned: bool = True


class SoftOutput(NamedTuple):
    """Outputs for N transitions; each one has a gradient for its own parameters only."""

    q: Tensor
    """`[C, N]`, value of the actions taken by each critic."""
    next_value: Tensor
    """`[N]`, soft value of the next observations by the target critics; without a gradient."""
    value: Tensor
    """`[N]`, soft value of the observations, with a gradient for the actor."""
    entropy: Tensor
    """`[N]`, entropy of the policy at the observations; without a gradient."""
    log_alpha: Tensor
    """Log of the temperature, a scalar."""
    classes: Classes | None = None
    """`q` as logits `[C, N, Z]` of bins. If None, the value is not learned by classification."""


class Stacks(nn.Module):
    """C parallel stacks of layers on the same features.

    Args:
        in_features: width of the input.
        widths: widths of the hidden layers.
        count: C.
        outputs: number of outputs of each stack.
        hidden: function that makes the hidden layers.
        bins: settings of outputs by classification. If None, the outputs are learned by regression.
    """

    def __init__(
        self,
        in_features: int,
        widths: list[int],
        count: int,
        outputs: int,
        hidden: Callable[..., HiddenLayers],
        bins: Bins | None = None,
    ) -> None:
        super().__init__()
        self.bins = bins
        self.towers = nn.ModuleList(hidden(in_features, widths) for _ in range(count))
        width = widths[-1] if widths else in_features
        self.heads = nn.ModuleList(
            nn.Linear(width, outputs) if bins is None else BinnedLinear(width, outputs, bins) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps `[N, H]` to `[C, N, outputs]`."""
        # separate products: one batched product of two took longer, forward and backward (2 x 256^3, one thread)
        return torch.stack([head(tower(x)) for tower, head in zip(self.towers, self.heads, strict=True)])

    def logits(self, x: Tensor) -> Tensor:
        """Maps `[N, H]` to logits `[C, N, outputs, Z]` of bins, if the outputs are learned by classification."""
        stacks: Any = zip(self.towers, self.heads, strict=True)
        return torch.stack([head.classes(tower(x)).logits for tower, head in stacks])


class Critics(nn.Module):
    """Action values: `[C, N]` of actions of a Box, `[C, N, A]` of all discrete actions.

    Args:
        features: module from observations to `[N, H]`.
        stacks: layers from the features (and the action of a Box) to values.
    """

    def __init__(self, features: Features, stacks: Stacks) -> None:
        super().__init__()
        self.features = features
        self.stacks = stacks

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """Returns None, since critics draw no random numbers."""
        return None


class LogAlpha(nn.Module):
    """Log of the temperature; a module, so that a fixed value does not precede the buffers of the critics."""

    value: Tensor

    def __init__(self, temperature: Temperature) -> None:
        super().__init__()
        value = torch.tensor(math.log(temperature.initial) if temperature.initial else -math.inf)
        if temperature.learned:
            self.value = nn.Parameter(value)
        else:
            self.register_buffer("value", value)


class Actor(nn.Module):
    """Actor: the policy network of SAC.

    Args:
        features: features of the actor. If None, the actor reads those of the critics, without a gradient.
        tower: hidden layers.
        head: head that maps the last hidden layer to a distribution.
    """

    head: ActionHead

    def __init__(self, features: Features | None, tower: HiddenLayers, head: ActionHead) -> None:
        super().__init__()
        self.features = features
        self.tower = tower
        self.head = head


class SoftActorCriticNet(nn.Module, ABC):
    """Critics, actor and temperature; subclasses are for Box and Discrete actions.

    Args:
        critics: the online critics; they come first, since the target critics are a copy of the first parameters and buffers.
        actor: policy network.
        temperature: settings of the temperature alpha.
    """

    def __init__(self, critics: Critics, actor: Actor, temperature: Temperature) -> None:
        super().__init__()
        self.critics = critics
        self.actor = actor
        self.log_alpha = LogAlpha(temperature)

    def policy(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        """Returns the distribution over actions for a flat dict of `[N, *shape]`."""
        features = self.actor.features
        x = self.critics.features(obs).detach() if features is None else features(obs)
        return self.actor.head(self.actor.tower(x), mask)

    def forward(self, batch: Batch, target: Critics, noise: Noise | None = None) -> SoftOutput:
        """Returns the inputs of the losses.

        Args:
            batch: transitions.
            target: target critics.
            noise: random numbers of the sampled actions.
        """
        alpha = self.log_alpha.value.detach().exp()
        now, later = (None, None) if noise is None else noise.normal.chunk(2)
        with torch.no_grad():
            next_x = target.features(batch.next_obs)
            next_policy = self.policy(batch.next_obs, batch.next_mask)
            next_value, _ = self._value(next_policy, partial(self._q, target.stacks, next_x), alpha, later)
        x = self.critics.features(batch.obs)
        policy = self.policy(batch.obs, batch.mask)
        value, entropy = self._value(policy, partial(self._frozen_q, x.detach()), alpha, now)
        stacks: Any = self.critics.stacks
        classes = None
        if stacks.bins is not None:
            classes = Classes(self._taken(stacks.logits, x, batch.action), stacks.heads[0].readout)
        q = self._taken(stacks, x, batch.action) if classes is None else classes.mean
        return SoftOutput(q, next_value, value, entropy.detach(), self.log_alpha.value, classes)

    def _q(self, stacks: Callable[[Tensor], Tensor], x: Tensor, action: Tensor | None) -> Tensor:
        """Returns values `[C, N, outputs]` of features `[N, H]` and, for a Box, actions `[N, D]`."""
        return stacks(x if action is None else torch.cat([x, action], -1))

    def _frozen_q(self, x: Tensor, action: Tensor | None) -> Tensor:
        """Returns values by the online critics, with a gradient for the action but none for the critics' parameters."""
        stacks = self.critics.stacks
        parameters = {name: parameter.detach() for name, parameter in stacks.named_parameters()}
        return self._q(lambda inputs: functional_call(stacks, parameters, (inputs,)), x, action)

    @abstractmethod
    def _taken(self, stacks: Callable[[Tensor], Tensor], x: Tensor, action: Tensor) -> Tensor:
        """Returns values `[C, N]`, or logits `[C, N, Z]`, of features `[N, H]` and stored actions."""

    @abstractmethod
    def _value(
        self, policy: Any, q: Callable[[Tensor | None], Tensor], alpha: Tensor, drawn: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns soft value and entropy, `[N]` each.

        Args:
            policy: distribution over actions.
            q: maps actions to values.
            alpha: temperature.
            drawn: `[N, D]` random numbers for a sample; it is None for Discrete.
        """

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """Returns a buffer for the random numbers of one update, or None if there are none."""
        return None


class BoxNet(SoftActorCriticNet):
    """Soft actor-critic for a Box: values and entropies by one sampled action per observation."""

    def _taken(self, stacks: Callable[[Tensor], Tensor], x: Tensor, action: Tensor) -> Tensor:
        head: Any = self.actor.head
        return self._q(stacks, x, head.to_unit(action)).squeeze(2)

    def _value(
        self, policy: Any, q: Callable[[Tensor | None], Tensor], alpha: Tensor, drawn: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        sample = policy.sample(drawn)
        log_prob = policy.log_prob(sample)
        return soft_value(q(sample.tanh()).squeeze(-1), log_prob, alpha), -log_prob

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        device = next(self.parameters()).device
        head = self.actor.head
        # all rows share one draw of state-dependent noise
        draws = 1 if isinstance(head, SoftStateDependentHead) else rows
        return Noise.zeros((2 * draws, head.width), (0, 0), device, factorised=False)


class ChoiceNet(SoftActorCriticNet):
    """Soft actor-critic for Discrete: values and entropies by expectation over all actions."""

    def _taken(self, stacks: Callable[[Tensor], Tensor], x: Tensor, action: Tensor) -> Tensor:
        every = stacks(x)  # [C, N, A], or [C, N, A, Z]
        place = action.view(1, -1, 1, *(1,) * (every.dim() - 3)).expand(len(every), -1, 1, *every.shape[3:])
        return every.gather(2, place).squeeze(2)

    def _value(
        self, policy: Any, q: Callable[[Tensor | None], Tensor], alpha: Tensor, drawn: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return expected_soft_value(q(None), policy.logp, alpha), policy.entropy()


def make_head(actions: Actions, in_features: int, sde: Settings | None) -> ActionHead:
    """Returns the head of the actor for an action space; `sde` are the arguments of state-dependent exploration."""
    if sde is not None and isinstance(actions, BoxActions):
        return SoftStateDependentHead(in_features, actions, **sde)
    return SoftHead(in_features, actions) if isinstance(actions, BoxActions) else CategoricalHead(in_features, actions)
