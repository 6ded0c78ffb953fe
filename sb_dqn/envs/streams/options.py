"""How the stream of an environment is to be read: what the learner sees of reward, lives and frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StreamOptions:
    """How an env's stream is to be read; the envs that we make carry it as their attribute `stream_options`."""

    clip_reward: bool = False
    """The learner's reward is sign(score); `Slot.score` stays raw."""
    terminal_on_life_loss: bool = False
    """A lost life has no value beyond it: terminal = terminated or a life was lost. The game goes on."""
    fire_after_life_loss: bool = False
    """Replaces the lane's next action by FIRE (index 1) after a lost life, and stores FIRE as the action taken."""
    frame_stack: int = 1
    """K: the env gives single frames `[1, H, W]`; ring and actor stack K of them."""
    protocol: str = ""
    """The evaluation protocol by name ("classic", "sticky"), empty where there is none."""
    action_mask: str | None = None
    """Where the legal actions are told: "info" (`info["action_mask"]`), or a key of a Dict observation; None: nowhere."""
    step_timeout: float | None = None
    """Seconds after which a worker of an AsyncVectorEnv that has not answered is taken to hang; None waits for ever."""


def options_of(env: Any) -> StreamOptions | None:
    """The `stream_options` that an env, or one that it wraps, carries; None if there are none."""
    seen = env
    while seen is not None:
        found = getattr(seen, "stream_options", None)
        if isinstance(found, StreamOptions):
            return found
        seen = getattr(seen, "env", None)
    return None
