"""Options of environment streams: reward clipping, lives, frame stacking, action masks and timeouts."""

from __future__ import annotations

from dataclasses import dataclass

from sb_dqn.types import EnvLike


@dataclass(frozen=True)
class StreamOptions:
    """Options of an environment's stream. Environments made by this library carry them as `stream_options`."""

    clip_reward: bool = False
    """Replaces the learner's reward by sign(score); `Slot.score` stays raw."""
    terminal_on_life_loss: bool = False
    """Treats a lost life as terminal, with no value beyond it. The game continues."""
    fire_after_life_loss: bool = False
    """Replaces the lane's next action by FIRE (index 1) after a lost life, and stores FIRE as the action taken."""
    frame_stack: int = 1
    """Number of frames K stacked by the replay buffer and the actor; the env returns single frames `[1, H, W]`."""
    protocol: str = ""
    """Name of the evaluation protocol ("classic", "sticky"); empty without one."""
    action_mask: str | None = None
    """Source of the legal actions: "info" (`info["action_mask"]`), or a key of a Dict observation. If None, there are no
    masks."""
    step_timeout: float | None = None
    """Seconds after which a silent worker of an AsyncVectorEnv counts as hung; None waits forever."""


def options_of(env: EnvLike) -> StreamOptions | None:
    """Returns the `stream_options` of an env or of the first wrapped env that has some; else None."""
    layer = env
    while layer is not None:
        options = getattr(layer, "stream_options", None)
        if isinstance(options, StreamOptions):
            return options
        layer = getattr(layer, "env", None)
    return None
