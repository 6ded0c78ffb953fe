"""What is shown: a frame for every observation, and for Atari the same game in colour."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sb_dqn.cli.rendering import ATARI_RATE, Film, Frame, Window, open_shown
from sb_dqn.errors import ConfigurationError


class Wall:
    """A screen that keeps what it is shown."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def show(self, frame: Frame) -> None:
        self.frames.append(np.array(frame))

    def close(self) -> None:
        self.frames.clear()


def test_a_single_env_shows_every_observation() -> None:
    pytest.importorskip("pygame", reason="gymnasium draws CartPole with pygame, of the render extra")
    wall = Wall()
    stream, screen = open_shown("CartPole-v1", {}, lambda rate: wall)
    assert screen is wall
    stream.begin(0)
    for _ in range(4):
        stream.step(np.array([1]))
    stream.close()
    assert len(wall.frames) == 5
    assert wall.frames[0].shape == (400, 600, 3)
    assert (wall.frames[0] != wall.frames[4]).any()


@pytest.mark.parametrize("protocol", ["classic", "sticky"])
def test_atari_shows_the_very_game_that_is_played(protocol: str) -> None:
    wall = Wall()
    rates: list[float] = []

    def make_screen(rate: float) -> Wall:
        rates.append(rate)
        return wall

    stream, _ = open_shown("ALE/Breakout-v5", {"protocol": protocol}, make_screen)
    assert rates == [ATARI_RATE]
    grey = [stream.begin(5).slots[-1].obs["obs"][0, 0]]
    rng = np.random.default_rng(0)
    for _ in range(400):
        grey.append(stream.step(rng.integers(4, size=1)).slots[-1].obs["obs"][0, 0])
    assert len(wall.frames) == len(grey)
    assert wall.frames[0].shape == (210, 160, 3)
    changes = [(a != b).any() for a, b in pairwise(grey)]
    coloured = [(a != b).any() for a, b in pairwise(wall.frames)]
    assert sum(changes) > 100
    for seen, shown in zip(changes, coloured, strict=True):
        assert shown or not seen  # whatever moved for the agent moved on the screen
    luminance = np.stack([frame.mean() for frame in wall.frames])
    assert np.corrcoef(luminance, [frame.mean() for frame in grey])[0, 1] > 0.99
    stream.close()


def replace_imageio(monkeypatch: pytest.MonkeyPatch, get_writer: Callable[..., Any]) -> None:
    package, module = ModuleType("imageio"), ModuleType("imageio.v2")
    vars(module)["get_writer"] = get_writer
    vars(package)["v2"] = module
    monkeypatch.setitem(sys.modules, "imageio", package)
    monkeypatch.setitem(sys.modules, "imageio.v2", module)


def test_a_film_gets_every_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    class Writer:
        def append_data(self, frame: Frame) -> None:
            written.append(frame)

        def close(self) -> None:
            written.append("closed")

    options: dict[str, Any] = {}

    def get_writer(path: Path, **given: Any) -> Writer:
        options.update(given, path=path)
        return Writer()

    replace_imageio(monkeypatch, get_writer)
    film = Film(tmp_path / "film.mp4", 15.0)
    film.show(np.zeros((4, 4, 3), np.uint8))
    film.close()
    assert options["fps"] == 15.0
    assert len(written) == 2
    assert written[1] == "closed"


@pytest.mark.parametrize("error", [ValueError, RuntimeError, ImportError])
def test_a_film_without_ffmpeg_names_the_extra(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_writer(path: Path, **given: Any) -> None:
        raise error("Could not find a backend")

    replace_imageio(monkeypatch, get_writer)
    with pytest.raises(
        ConfigurationError, match=r"ends in .mp4 needs ffmpeg: pip install 'sb_dqn\[video\]'; or .* .gif"
    ):
        Film(tmp_path / "film.mp4", 15.0)


def test_a_film_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def append_data(self, frame: Frame) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    replace_imageio(monkeypatch, lambda path, **given: Full())
    film = Film(tmp_path / "film.mp4", 15.0)
    with pytest.raises(ConfigurationError, match="film.mp4 cannot be written: No space left"):
        film.show(np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(ConfigurationError, match="film.mp4 cannot be written: No space left"):
        film.close()


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("imageio.v2", lambda: Film(Path("film.mp4"), 15.0), "video"),
        ("pygame", lambda: Window("title", 15.0), "render"),
    ],
)
def test_a_missing_package_names_its_extra(module: str, make: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == module:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigurationError, match=rf"pip install 'sb_dqn\[{extra}\]'"):
        make()


def test_a_window_draws_and_closing_it_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame", reason="the window is pygame's, of the render extra")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    window = Window("title", 1000.0)
    frame = np.zeros((210, 160, 3), np.uint8)
    frame[..., 0] = 200
    window.show(frame)
    surface = pygame.display.get_surface()
    assert surface.get_size() == (320, 420)
    assert surface.get_at((10, 10))[:3] == (200, 0, 0)
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    with pytest.raises(SystemExit):
        window.show(frame)
    window.close()
