"""Environments that show each frame, and where the frames go: a window, or a film."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from sb_dqn.cli.train.make_env import atari_arguments
from sb_dqn.envs.atari import is_atari, make_atari_env
from sb_dqn.envs.make import make_env, spec_of
from sb_dqn.envs.streams.open import Stream, open_stream
from sb_dqn.envs.vector.atari_env import AtariLanes
from sb_dqn.errors import ConfigurationError

Frame = npt.NDArray[np.uint8]
"""`[H, W, 3]` RGB."""
SMALLEST = 400
"""Height in pixels below which a window is enlarged."""
ATARI_RATE = 15.0
"""Steps a second: 60 frames, of which the agent sees every fourth."""


FILMS = (".mp4", ".gif", ".mkv", ".mov", ".avi")
"""Endings of films."""


class Screen(Protocol):
    """Where frames go."""

    def show(self, frame: Frame) -> None: ...

    def close(self) -> None: ...


class Window:
    """A window on the screen, at the speed of the game; closing it ends the program."""

    def __init__(self, title: str, rate: float) -> None:
        try:
            import pygame
        except ImportError:
            raise ConfigurationError(
                "a window needs pygame: pip install 'sb_dqn[render]'; or make a film with --video film.mp4"
            ) from None
        self._pygame, self._title, self._rate = pygame, title, rate
        self._screen: Any = None
        self._clock = pygame.time.Clock()

    def show(self, frame: Frame) -> None:
        """Draw, and wait until the next frame is due."""
        pygame = self._pygame
        scale = max(1, -(-SMALLEST // frame.shape[0]))
        size = (frame.shape[1] * scale, frame.shape[0] * scale)
        if self._screen is None:
            pygame.display.init()
            try:
                self._screen = pygame.display.set_mode(size)
            except pygame.error as error:
                raise ConfigurationError(
                    f"no window can be opened ({error}); make a film with --video film.mp4"
                ) from error
            pygame.display.set_caption(self._title)
        surface = pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        self._screen.blit(pygame.transform.scale(surface, size), (0, 0))
        pygame.display.flip()
        self._clock.tick(self._rate)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            raise SystemExit(0)

    def close(self) -> None:
        self._pygame.display.quit()


class Film:
    """A video file; the ending of `path` (one of `FILMS`) says the format."""

    def __init__(self, path: Path, rate: float) -> None:
        try:
            import imageio.v2 as imageio
        except ImportError:
            raise ConfigurationError("a film needs imageio: pip install 'sb_dqn[video]'") from None
        self._path = path
        gif = path.suffix.lower() == ".gif"
        options: dict[str, Any] = {"duration": 1000 / rate, "loop": 0} if gif else {"fps": rate, "macro_block_size": 2}
        with _writing(path):
            try:
                self._writer: Any = imageio.get_writer(path, **options)
            except (ImportError, RuntimeError, ValueError):  # no backend, or one without its program
                raise ConfigurationError(
                    f"a film that ends in {path.suffix} needs ffmpeg: pip install 'sb_dqn[video]'; or let it end in .gif"
                ) from None

    def show(self, frame: Frame) -> None:
        with _writing(self._path):
            self._writer.append_data(frame)

    def close(self) -> None:
        with _writing(self._path):
            self._writer.close()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error


class Shown(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A single environment that shows what it renders after each step."""

    def __init__(self, env: gymnasium.Env[Any, Any], screen: Screen) -> None:
        super().__init__(env)
        self._screen = screen

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        answer = self.env.reset(seed=seed, options=options)
        self._show()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        self._show()
        return answer

    def _show(self) -> None:
        frame: Any = self.env.render()
        self._screen.show(frame)


class ShownAtari(AtariLanes):
    """One Atari lane and its twin: equal seeds and equal actions play the same game, the twin's in colour and full size."""

    def __init__(self, lane: AtariLanes, twin: AtariLanes, screen: Screen) -> None:
        super().__init__(lane.env, lane.stream_options, lane.get_action_meanings())
        self._twin, self._screen = twin, screen

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._screen.show(self._twin.reset(seed=seed, options=options)[0][0, 0])
        return super().reset(seed=seed, options=options)

    def send(self, actions: Any) -> None:
        super().send(actions)
        self._twin.send(actions)

    def recv(self) -> Any:
        self._screen.show(self._twin.recv()[0][0, 0])
        return super().recv()

    def close_extras(self, **kwargs: Any) -> None:
        self._twin.close()
        super().close_extras(**kwargs)


def open_shown(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    make_screen: Callable[[float], Screen],
    action_mask: str | None = None,
) -> tuple[Stream, Screen]:
    """One lane of the environment that shows itself on the screen that `make_screen` makes for its rate (steps a second).

    Raises:
        ConfigurationError: an unknown id, or an environment that cannot render.
    """
    if is_atari(spec_of(env_id)):
        arguments = atari_arguments(env_kwargs)
        coloured = {**arguments["env_kwargs"], "grayscale": False, "img_height": 210, "img_width": 160}
        lane = make_atari_env(env_id, 1, **arguments)
        twin = make_atari_env(env_id, 1, **{**arguments, "frame_stack": 1, "env_kwargs": coloured})
        if not isinstance(lane, AtariLanes) or not isinstance(twin, AtariLanes):
            raise ConfigurationError(f"{env_id} cannot be shown; take its ALE/...-v5 or ...NoFrameskip-v4 form")
        screen = make_screen(ATARI_RATE)
        return open_stream(ShownAtari(lane, twin, screen), action_mask=action_mask), screen
    env = make_env(env_id, {**env_kwargs, "render_mode": "rgb_array"})
    screen = make_screen(float(env.metadata.get("render_fps") or 30))
    return open_stream(Shown(env, screen), action_mask=action_mask), screen
