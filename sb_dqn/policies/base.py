"""Base classes of policies: the networks of a model, without algorithm or environment; names of their parameters in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sb_dqn.errors import no_attribute
from sb_dqn.nn.heads.distributions import ActionDistribution
from sb_dqn.nn.heads.policy_heads import ActionHead
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.recurrent import RecurrentConfig
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.sb3_names import POLICY_ATTRIBUTES
from sb_dqn.spaces import Space, actions_of
from sb_dqn.types import Array, FloatArray, State

Kind = Literal["any", "vector", "image", "dict"]


class Policy(nn.Module, ABC):
    """Networks for one pair of spaces.

    Methods with `step` in their names are for feed-forward and recurrent policies alike: a recurrent policy takes the
    previous action, the previous reward and its state as further inputs, and returns its next state as the last output.

    Args:
        observation_space: space of one lane, as the networks see it (with its frame stack).
        action_space: space of one lane.
    """

    kind: ClassVar[Kind] = "any"
    """Observations of the class: "vector" flattens them, "image" needs one image, "dict" needs a Dict."""

    recurrent: ClassVar[bool] = False
    """True if the policy has a recurrent layer."""

    recurrent_config: RecurrentConfig | None = None
    """The recurrent layer. If None, the network is feed-forward."""

    _make_features: Callable[[], Features]
    """Makes the preprocessing and features extractor; the constructors of subclasses set it."""

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space

    def make_features(self) -> Features:
        """Returns new preprocessing and features extractor, as configured by the keywords."""
        return self._make_features()

    if not TYPE_CHECKING:  # a type checker would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Returns a network or tensor, which torch does not store as attributes.

            Raises:
                AttributeError: unknown name.
            """
            try:
                return super().__getattr__(name)
            except AttributeError:
                raise no_attribute(self, name, POLICY_ATTRIBUTES) from None

    @property
    @abstractmethod
    def networks(self) -> tuple[nn.Module, nn.Module | None]:
        """The network that learns, and its target network, if any."""

    @property
    def acting_network(self) -> nn.Module:
        """The network that selects actions: in training, in `predict` and in exported files."""
        return self.networks[0]

    @property
    def extras(self) -> dict[str, tuple[int, ...]] | None:
        """Shapes, by name, of what a rollout stores with each action besides the value. If None, it stores nothing else."""
        return None

    @property
    def state_size(self) -> int:
        """Values in the recurrent state of one lane, P; 0 for a feed-forward policy."""
        return 0 if self.recurrent_config is None else self.recurrent_config.state_size

    @property
    def reads_reward(self) -> bool:
        """True if the last reward is an input."""
        return self.recurrent_config is not None and self.recurrent_config.previous_reward

    @abstractmethod
    def greedy(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        """Returns the best action for each observation; of a recurrent policy at the start of an episode.

        Args:
            obs: observations, a flat dict of `[N, *shape]`.
            mask: `[N, (D,) A]` bool, legal actions. If None, all actions are legal.
            noise: random numbers of the networks. If None, the networks use none.

        Returns:
            `[N]` int64, 0-based; `[N, D]` for MultiDiscrete; `[N, *shape]` float32 for a Box.
        """

    @abstractmethod
    def greedy_step(self, obs: dict[str, Tensor], mask: Tensor | None, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Returns the best actions, and of a recurrent policy also the next state `[N, P]`.

        Args:
            obs: observations, a flat dict of `[N, *shape]`.
            mask: `[N, (D,) A]` bool, legal actions. If None, all actions are legal.
            inputs: inputs of a recurrent policy only: previous action `[N, ...]` (`no_action` at the start of an episode),
                previous reward `[N]` float32 and state `[N, P]` float32 (zeros at the start of an episode).
        """

    def make_noise(self, rows: int) -> Noise | None:
        """Returns a buffer for the random numbers of acting on `rows` observations, or None if the networks need none."""
        return None

    def no_action(self, rows: int) -> Array:
        """Returns the previous action at the start of an episode, `[rows, ...]`: -1, zeros for a Box."""
        actions = actions_of(self.action_space)
        none = np.int64(-1) if actions.num_actions else np.float32(0)
        return np.full((rows, *actions.shape), none)

    def initial_inputs(self, obs: dict[str, Tensor]) -> tuple[Tensor, ...]:
        """Returns the recurrent inputs at the start of an episode: previous action, previous reward and state."""
        some = next(iter(obs.values()))
        count = len(some)
        action = torch.as_tensor(self.no_action(count), device=some.device)
        reward = torch.zeros(count, device=some.device)
        return action, reward, torch.zeros(count, self.state_size, device=some.device)


class StochasticPolicy(Policy):
    """Policy that samples its actions from a distribution; it needs no exploration strategy."""

    @property
    @abstractmethod
    def action_head(self) -> ActionHead:
        """The head that maps features to a distribution, and samples to actions."""

    @abstractmethod
    def distribution(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> ActionDistribution:
        """Returns the distribution over actions; of a recurrent policy at the start of an episode. See `greedy`."""

    def distribution_step(self, obs: dict[str, Tensor], mask: Tensor | None, *inputs: Tensor) -> tuple[Any, ...]:
        """Returns the distribution over actions; of a recurrent policy also the next state. See `greedy_step`."""
        return (self.distribution(obs, mask),)

    def greedy(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        """Returns the most probable choices; for a Box the mean, within its bounds."""
        return self.action_head.to_action(self.distribution(obs, mask).mode())

    def greedy_step(self, obs: dict[str, Tensor], mask: Tensor | None, *inputs: Tensor) -> tuple[Tensor, ...]:
        if not inputs:
            return (self.greedy(obs, mask),)
        distribution, state = self.distribution_step(obs, mask, *inputs)
        return self.action_head.to_action(distribution.mode()), state

    def sample_step(
        self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """Returns sampled actions, and of a recurrent policy also the next state.

        Args:
            obs: observations, a flat dict of `[N, *shape]`.
            mask: `[N, (D,) A]` bool, legal actions. If None, all actions are legal.
            drawn: random numbers from `draw`.
            inputs: see `greedy_step`.
        """
        distribution, *state = self.distribution_step(obs, mask, *inputs)
        return self.action_head.to_action(distribution.sample(drawn)), *state

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs of `act` after the actions."""
        return ()

    def act(self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Returns sampled actions and the outputs that `output_names` lists, in that order. See `sample_step`."""
        return self.sample_step(obs, mask, drawn, *inputs)

    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        """Returns `[rows, W]` random numbers for `sample_step`."""
        return self.action_head.draw(rng, rows)


def keep_state_names(module: nn.Module, names: Mapping[str, str]) -> None:
    """Saves and loads children of a module under other names, so that model files keep their layout.

    Args:
        module: module whose `state_dict` and `load_state_dict` change.
        names: attribute of a child to its name in state dicts, a dotted path.
    """
    stored = {f"{attribute}.": f"{name}." for attribute, name in names.items()}
    loaded = {name: attribute for attribute, name in stored.items()}

    def save(_: nn.Module, state: State, prefix: str, *further: object) -> None:
        _rename(state, prefix, stored)

    def load(_: nn.Module, state: State, prefix: str, *further: object) -> None:
        _rename(state, prefix, loaded)

    module.register_state_dict_post_hook(save)  # type: ignore[no-untyped-call]  # of torch
    module.register_load_state_dict_pre_hook(load)  # type: ignore[no-untyped-call]


def _rename(state: State, prefix: str, names: Mapping[str, str]) -> None:
    """Renames the keys that begin with `prefix` and one of `names`, in place and in order."""
    items = list(state.items())
    state.clear()
    for key, value in items:
        old = next((old for old in names if key.startswith(prefix + old)), "")
        state[prefix + names[old] + key[len(prefix + old) :] if old else key] = value
