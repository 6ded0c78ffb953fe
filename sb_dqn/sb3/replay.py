"""The replay buffer of a model with the methods and field names of Stable-Baselines3's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples

from sb_dqn.buffers import ReplayBuffer
from sb_dqn.buffers.sequences import SequenceView
from sb_dqn.core.predictor import single_frames
from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import Actions, actions_of
from sb_dqn.types import Blueprint


def stream_of(blueprint: Blueprint, action_mask: str | None) -> Any:
    """Returns an object with the attributes of a stream that the shape of a replay buffer depends on."""
    return SimpleNamespace(
        num_envs=blueprint.num_envs,
        blueprint=blueprint,
        observation_space=single_frames(blueprint) if blueprint.frame_stack > 1 else blueprint.observation_space,
        action_shape=actions_of(blueprint.action_space),
        has_masks=action_mask is not None,
    )


class ReplayView:
    """View of a replay buffer: `sample`, `size`, `buffer_size`, `n_envs`, `pos`, `full`, `device`.

    Args:
        replay: the buffer; other attributes are its own.
        actions: the action space.
        gamma: discount of the model.
    """

    def __init__(self, replay: ReplayBuffer, actions: Actions, gamma: float) -> None:
        self.replay = replay
        self.actions = actions
        self.gamma = gamma

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "replay":  # while it is copied
            raise AttributeError(name)
        return getattr(self.replay, name)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """Returns the number of stored rows in each environment."""
        return self.replay.size() // self.n_envs

    @property
    def n_envs(self) -> int:
        return self.replay.ring.num_lanes

    @property
    def buffer_size(self) -> int:
        """Capacity in rows of each environment."""
        return self.replay.ring.rows

    @property
    def full(self) -> bool:
        return self.size() >= self.buffer_size

    @property
    def pos(self) -> int:
        """Index at which the next row is stored."""
        return int(self.replay.ring.cursor[0]) % self.buffer_size

    @property
    def device(self) -> Any:
        return self.replay.ring.device

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples | DictReplayBufferSamples:
        """Returns transitions with `observations`, `actions` `[N, 1]`, `next_observations`, `dones`, `rewards` and `discounts`.

        Args:
            batch_size: N.
            env: not used: observations are those that the environment returned.

        Raises:
            ConfigurationError: the model is recurrent, or nothing is stored yet.
        """
        if isinstance(self.replay.view, SequenceView):
            raise ConfigurationError(
                "replay_buffer.sample must be called on a feed-forward model, got sequences. Call replay.sample(n)."
            )
        batch = self.replay.sample(batch_size)
        plain = set(batch.obs) == {"obs"}
        dones = (batch.discount == 0).float() if self.gamma else batch.discount.new_zeros(len(batch.discount))
        action = batch.action if batch.action.dim() > 1 else batch.action.unsqueeze(-1)
        discounts = batch.discount.where(dones == 0, batch.discount.new_tensor(self.gamma))
        columns = (
            action,
            batch.next_obs["obs"] if plain else batch.next_obs,
            *(column.unsqueeze(-1) for column in (dones, batch.return_, discounts)),
        )
        kind: Any = ReplayBufferSamples if plain else DictReplayBufferSamples
        samples: ReplayBufferSamples | DictReplayBufferSamples = kind(
            batch.obs["obs"] if plain else batch.obs, *columns
        )
        return samples
