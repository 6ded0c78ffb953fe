"""Rendering of episodes for `sb-dqn enjoy`, to a window or a video file.

Gymnasium's `RecordVideo` would replace `VideoFile` only: it writes MP4 alone, and keeps all frames in memory until the end, 2.7 GB
for half an hour of Atari.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from sb_dqn.envs.atari import is_atari, make_atari_env
from sb_dqn.envs.by_id import atari_arguments
from sb_dqn.envs.make import make_env, spec_of
from sb_dqn.envs.streams.open import Stream, open_stream
from sb_dqn.envs.vector.atari_env import AtariLanes
from sb_dqn.errors import ConfigurationError, explained, import_extra
from sb_dqn.evaluation import Episodes, play_episodes
from sb_dqn.types import Env, Kwargs, ModelLike, ResetResult, Settings, StepResult

Frame = npt.NDArray[np.uint8]
"""`[H, W, 3]` RGB."""
MIN_HEIGHT = 400
"""Minimum height of a window in pixels; smaller frames are enlarged."""
ATARI_RATE = 15.0
"""Steps per second: 60 emulator frames with a frame skip of 4."""
UNSEEN = ("dummy", "offscreen")
"""Drivers that SDL falls back to without a display; they draw into memory."""
FIX = "Choose another file."
NO_DISPLAY = "Record a video with --video film.mp4."
VIDEO_SUFFIXES = (".mp4", ".gif", ".mkv", ".mov", ".avi")
"""File endings of supported video formats."""


class Screen(Protocol):
    """Output for rendered frames."""

    def show(self, frame: Frame) -> None: ...

    def close(self) -> None: ...


class Window:
    """Window that shows frames at `rate` per second; closing it ends the program."""

    def __init__(self, title: str, rate: float) -> None:
        pygame = import_extra("pygame", "render", "to open a window", ", or record a video with --video film.mp4")
        with explained("a display", "available to open a window", NO_DISPLAY, pygame.error):
            pygame.display.init()
            if pygame.display.get_driver() in UNSEEN and "SDL_VIDEODRIVER" not in os.environ:
                raise pygame.error("no screen is connected")
        self._pygame = pygame
        self._title = title
        self._rate = rate
        self._screen: Any = None
        self._clock = pygame.time.Clock()

    def show(self, frame: Frame) -> None:
        """Draws the frame and waits until the next one is due."""
        pygame = self._pygame
        scale = max(1, -(-MIN_HEIGHT // frame.shape[0]))
        size = (frame.shape[1] * scale, frame.shape[0] * scale)
        if self._screen is None:
            with explained("a display", "available to open a window", NO_DISPLAY, pygame.error):
                self._screen = pygame.display.set_mode(size)
            pygame.display.set_caption(self._title)
        surface = pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        self._screen.blit(pygame.transform.scale(surface, size), (0, 0))
        pygame.display.flip()
        self._clock.tick(self._rate)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise SystemExit(0)

    def close(self) -> None:
        self._pygame.display.quit()


class VideoFile:
    """Video file of `rate` frames per second; its ending (one of `VIDEO_SUFFIXES`) selects the format."""

    def __init__(self, path: Path, rate: float) -> None:
        imageio = import_extra("imageio.v2", "video", "to record a video")
        self._path = path
        gif = path.suffix.lower() == ".gif"
        options: Kwargs = {"duration": 1000 / rate, "loop": 0}
        if not gif:  # by name: without ffmpeg imageio would take another backend, which fails at the first frame
            options = {"format": "FFMPEG", "fps": rate, "macro_block_size": 2}
        with explained(path, "writable", FIX):
            try:
                self._writer: Any = imageio.get_writer(path, **options)
            except (ImportError, RuntimeError, ValueError):  # no backend, or a backend without its executable
                raise ConfigurationError(
                    f"ffmpeg must be installed to record a {path.suffix} video, got none. Run pip install "
                    f"'sb_dqn[video]', or write a .gif file."
                ) from None

    def show(self, frame: Frame) -> None:
        with explained(self._path, "writable", FIX):
            self._writer.append_data(frame)

    def close(self) -> None:
        with explained(self._path, "writable", FIX):
            self._writer.close()


def join_videos(clips: Sequence[Path], path: Path) -> None:
    """Writes the frames of video files with the same frame rate, one file after the other, to a new one."""
    import imageio.v2 as imageio

    film: VideoFile | None = None
    for clip in clips:
        with imageio.get_reader(clip) as reader:
            film = film or VideoFile(path, reader.get_meta_data()["fps"])
            for frame in reader:
                film.show(frame)
    if film is not None:
        film.close()


class RenderFrames(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that sends the rendered frame to `screen` after each reset and step."""

    def __init__(self, env: Env, screen: Screen) -> None:
        super().__init__(env)
        self._screen = screen

    def reset(self, *, seed: int | None = None, options: Kwargs | None = None) -> ResetResult:
        result = self.env.reset(seed=seed, options=options)
        self._show()
        return result

    def step(self, action: object) -> StepResult:
        result = self.env.step(action)
        self._show()
        return result

    def _show(self) -> None:
        frame: Any = self.env.render()
        self._screen.show(frame)


class RenderAtari(AtariLanes):
    """Atari lane that sends the frames of a second emulator to `screen`.

    Both emulators play the same game because they use the same seeds and actions.

    Args:
        lane: one preprocessed lane for the agent.
        color_lane: the same game in color at 210 x 160 pixels.
        screen: output for the color frames.
    """

    def __init__(self, lane: AtariLanes, color_lane: AtariLanes, screen: Screen) -> None:
        super().__init__(lane.env, lane.stream_options, lane.get_action_meanings())
        self._color_lane = color_lane
        self._screen = screen

    def reset(self, *, seed: object = None, options: Kwargs | None = None) -> ResetResult:
        self._screen.show(self._color_lane.reset(seed=seed, options=options)[0][0, 0])
        return super().reset(seed=seed, options=options)

    def send(self, actions: Any) -> None:
        super().send(actions)
        self._color_lane.send(actions)

    def recv(self) -> Any:
        self._screen.show(self._color_lane.recv()[0][0, 0])
        return super().recv()

    def close_extras(self, **kwargs: object) -> None:
        self._color_lane.close()
        super().close_extras(**kwargs)


def play_rendered(
    model: ModelLike,
    env_id: str,
    env_kwargs: Settings,
    make_screen: Callable[[float], Screen],
    episodes: int = 1,
    **options: Any,
) -> Episodes:
    """Plays episodes on a screen.

    Args:
        model: plays the actions.
        env_id: gymnasium id.
        env_kwargs: keywords of the environment.
        make_screen: makes the screen from a frame rate in steps per second.
        episodes: number of episodes, >= 1.
        options: further keywords of `play_episodes`.

    Raises:
        ConfigurationError: an unknown id, or an environment that cannot render.
    """
    stream, screen = open_rendered(env_id, env_kwargs, make_screen, model.action_mask)
    try:
        return play_episodes(model, stream, episodes, **options)
    finally:
        screen.close()
        stream.close()


def open_rendered(
    env_id: str, env_kwargs: Settings, make_screen: Callable[[float], Screen], action_mask: str | None = None
) -> tuple[Stream, Screen]:
    """Opens one lane of the environment and a screen that shows each of its frames; see `play_rendered`."""
    if is_atari(spec_of(env_id)):
        arguments = atari_arguments(env_kwargs)
        in_color = {**arguments["env_kwargs"], "grayscale": False, "img_height": 210, "img_width": 160}
        lane = make_atari_env(env_id, 1, **arguments)
        color_lane = make_atari_env(env_id, 1, **{**arguments, "frame_stack": 1, "env_kwargs": in_color})
        if not isinstance(lane, AtariLanes) or not isinstance(color_lane, AtariLanes):
            raise ConfigurationError(
                f"env must be an Atari id with a protocol to be rendered, got {env_id}. Use its ALE/...-v5 or ...NoFrameskip-v4 id."
            )
        screen = make_screen(ATARI_RATE)
        return open_stream(RenderAtari(lane, color_lane, screen), action_mask=action_mask), screen
    try:
        env = make_env(env_id, {**env_kwargs, "render_mode": "rgb_array"})
    except ConfigurationError as error:
        if "render_mode" not in str(error):
            raise
        raise ConfigurationError(
            f"{env_id} must accept render_mode='rgb_array', and return an image from render(), to be shown, got an error "
            f"({error.__cause__}). Add both to the environment."
        ) from error
    screen = make_screen(float(env.metadata.get("render_fps") or 30))
    return open_stream(RenderFrames(env, screen), action_mask=action_mask), screen
