"""Film of `sb-dqn train --record-training`: what the agent does at each evaluation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.runs.rendering import VideoFile, join_videos, play_rendered
from sb_dqn.types import Settings

FILM = "training.mp4"
CLIPS = "film"
"""Folder with one clip for each evaluation."""
CLIP_STEPS = 1_000
"""Maximum env steps of a clip."""


class TrainingFilm(BaseCallback):
    """Films a greedy episode at the start and whenever it is triggered: `film/step-N.mp4`; at the end all of them: `training.mp4`.

    Each clip is a file of its own, so that a run which is killed keeps them. All clips have the same seed.

    Args:
        folder: folder of the run.
        env_id, env_kwargs: environment that is filmed.
    """

    def __init__(self, folder: Path, env_id: str, env_kwargs: Settings) -> None:
        super().__init__()
        self.folder = folder
        self.env_id = env_id
        self.env_kwargs = dict(env_kwargs)

    def _on_training_start(self) -> None:
        if self.num_timesteps == 0:
            self._film()  # the untrained agent; raises before training where nothing can be rendered or written

    def _on_step(self) -> bool:
        with self._training_continues(CLIPS), _system_errors():
            self._film()
        return True

    def _film(self) -> None:
        clips = self.folder / CLIPS
        part = clips / "part.mp4"  # what a killed run leaves is no clip
        clips.mkdir(exist_ok=True)
        play_rendered(
            self.model,
            self.env_id,
            self.env_kwargs,
            lambda rate: VideoFile(part, rate),
            seed=self.model.seed,
            max_steps=CLIP_STEPS,
        )
        os.replace(part, clips / f"step-{self.num_timesteps:09d}.mp4")

    def _on_training_end(self) -> None:
        clips = sorted((self.folder / CLIPS).glob("step-*.mp4"))
        if clips:
            with self._training_continues(FILM), _system_errors():
                join_videos(clips, self.folder / FILM)


@contextmanager
def _system_errors() -> Iterator[None]:
    """Raises the `OSError` that is the first cause of another error, such as that of a full disk while an environment renders."""
    try:
        yield
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, OSError):
            raise cause from None
        raise
