"""The nets of soft actor-critic: critics side by side, an actor, and the temperature between reward and entropy."""

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
from sb_dqn.nn.heads.policy_heads import ActionHead, CategoricalHead
from sb_dqn.nn.heads.squashed_gaussian_head import SoftHead
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.mlp import HiddenLayers
from sb_dqn.spaces import Actions, BoxActions
from sb_dqn.types import Batch


@dataclass(frozen=True)
class Temperature:
    """alpha, the worth of one nat of entropy in units of reward.

    Args:
        initial: at the start, above 0; if it is not learned, from 0.
        learned: whether it follows the entropy of the policy.
    """

    initial: float = 1.0
    learned: bool = True


class SoftOutput(NamedTuple):
    """What the nets say of N transitions; each part has a gradient for its own parameters alone."""

    q: Tensor
    """`[C, N]`, what each critic thinks of the actions that were taken."""
    next_value: Tensor
    """`[N]`, soft value after them by the target critics; without a gradient."""
    value: Tensor
    """`[N]`, soft value of the observations, with a gradient for the actor."""
    entropy: Tensor
    """`[N]`, of the policy there; without a gradient."""
    log_alpha: Tensor
    """Scalar."""


class Stacks(nn.Module):
    """C values of the same features, each by layers of its own.

    Args:
        in_features: width of what goes in.
        widths: of the hidden layers.
        count: C.
        outputs: of each.
        hidden: makes the layers.
    """

    def __init__(
        self, in_features: int, widths: list[int], count: int, outputs: int, hidden: Callable[..., HiddenLayers]
    ) -> None:
        super().__init__()
        self.towers = nn.ModuleList(hidden(in_features, widths) for _ in range(count))
        width = widths[-1] if widths else in_features
        self.heads = nn.ModuleList(nn.Linear(width, outputs) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        """`[N, H]` -> `[C, N, outputs]`."""
        # one product for each: two in one batched product took longer, forward and backward (2 x 256^3, one thread)
        return torch.stack([head(tower(x)) for tower, head in zip(self.towers, self.heads, strict=True)])


class Critics(nn.Module):
    """What actions are worth: `[C, N]` of given numbers of a Box, `[C, N, A]` of all choices.

    Args:
        features: from observations to a row of numbers.
        stacks: from these numbers (and an action of a Box) to values.
    """

    def __init__(self, features: Features, stacks: Stacks) -> None:
        super().__init__()
        self.features, self.stacks = features, stacks

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """None: critics draw no random numbers."""
        return None


class LogAlpha(nn.Module):
    """The log of the temperature; of its own, so that a fixed one does not come before the critics' buffers."""

    value: Tensor

    def __init__(self, temperature: Temperature) -> None:
        super().__init__()
        value = torch.tensor(math.log(temperature.initial) if temperature.initial else -math.inf)
        if temperature.learned:
            self.value = nn.Parameter(value)
        else:
            self.register_buffer("value", value)


class Actor(nn.Module):
    """The policy.

    Args:
        features: its own; None: it shares those of the critics, which alone train them.
        tower: hidden layers.
        head: to a distribution.
    """

    head: ActionHead

    def __init__(self, features: Features | None, tower: HiddenLayers, head: ActionHead) -> None:
        super().__init__()
        self.features, self.tower, self.head = features, tower, head


class SoftActorCriticNet(nn.Module, ABC):
    """Critics, actor, temperature. Subclasses say what an action is.

    Args:
        critics: first, so that the target critics are a copy of the first parameters and buffers.
        actor: the policy.
        temperature: alpha.
    """

    def __init__(self, critics: Critics, actor: Actor, temperature: Temperature) -> None:
        super().__init__()
        self.critics, self.actor = critics, actor
        self.log_alpha = LogAlpha(temperature)

    def policy(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> Any:
        """The distribution over actions at a flat dict of `[N, *shape]`."""
        features = self.actor.features
        x = self.critics.features(obs).detach() if features is None else features(obs)
        return self.actor.head(self.actor.tower(x), mask)

    def forward(self, batch: Batch, target: Critics, noise: Noise | None = None) -> SoftOutput:
        """What is to be learned from.

        Args:
            batch: transitions.
            target: critics that bootstrap.
            noise: random numbers of the drawn actions.
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
        return SoftOutput(self._q_taken(x, batch.action), next_value, value, entropy.detach(), self.log_alpha.value)

    def _q(self, stacks: Callable[[Tensor], Tensor], x: Tensor, action: Tensor | None) -> Tensor:
        """`[C, N, outputs]` for features `[N, H]`, and actions `[N, D]` of a Box."""
        return stacks(x if action is None else torch.cat([x, action], -1))

    def _frozen_q(self, x: Tensor, action: Tensor | None) -> Tensor:
        """The same by the online critics, with a gradient for the action but none for their parameters."""
        stacks = self.critics.stacks
        parameters = {name: parameter.detach() for name, parameter in stacks.named_parameters()}
        return self._q(lambda given: functional_call(stacks, parameters, (given,)), x, action)

    @abstractmethod
    def _q_taken(self, x: Tensor, action: Tensor) -> Tensor:
        """`[C, N]` for features `[N, H]` and actions as they are stored."""

    @abstractmethod
    def _value(
        self, policy: Any, q: Callable[[Tensor | None], Tensor], alpha: Tensor, drawn: Any
    ) -> tuple[Tensor, Tensor]:
        """Soft value and entropy, `[N]` each.

        Args:
            policy: distribution.
            q: from actions to values.
            alpha: temperature.
            drawn: `[N, D]` random numbers for a sample; None where none are needed.
        """

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """Room for the random numbers of one update; None where nothing is drawn."""
        return None

    def make_apart(self, flat: Tensor) -> None:
        """None: all parameters have one optimiser."""


class BoxNet(SoftActorCriticNet):
    """For a Box: values and entropies by one drawn action for each observation."""

    def _q_taken(self, x: Tensor, action: Tensor) -> Tensor:
        head: Any = self.actor.head
        return self._q(self.critics.stacks, x, head.to_unit(action)).squeeze(-1)

    def _value(
        self, policy: Any, q: Callable[[Tensor | None], Tensor], alpha: Tensor, drawn: Any
    ) -> tuple[Tensor, Tensor]:
        sample = policy.sample(drawn)
        log_prob = policy.log_prob(sample)
        return soft_value(q(sample.tanh()).squeeze(-1), log_prob, alpha), -log_prob

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        device = next(self.parameters()).device
        width = self.actor.head.width
        return Noise(torch.zeros(2 * rows, width, device=device), torch.zeros(0, device=device), factorised=False)


class ChoiceNet(SoftActorCriticNet):
    """For Discrete: values and entropies by expectation over all choices."""

    def _q_taken(self, x: Tensor, action: Tensor) -> Tensor:
        q = self.critics.stacks(x)
        taken: Tensor = q.gather(-1, action.view(1, -1, 1).expand(len(q), -1, 1)).squeeze(-1)
        return taken

    def _value(
        self, policy: Any, q: Callable[[Tensor | None], Tensor], alpha: Tensor, drawn: Any
    ) -> tuple[Tensor, Tensor]:
        return expected_soft_value(q(None), policy.logp, alpha), policy.entropy()


def make_head(actions: Actions, in_features: int) -> ActionHead:
    """The head of the actor."""
    return SoftHead(in_features, actions) if isinstance(actions, BoxActions) else CategoricalHead(in_features, actions)
