"""Rendering: one frame per observation, and for Atari the same game in color."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sb_dqn import DQN
from sb_dqn.callbacks import EveryNTimesteps
from sb_dqn.errors import ConfigurationError
from sb_dqn.runs.rendering import ATARI_RATE, Frame, VideoFile, Window, open_rendered
from sb_dqn.runs.training_film import TrainingFilm
from tests.marks import SLOW, a_few


class RecordingScreen:
    """Screen that records its frames."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def show(self, frame: Frame) -> None:
        self.frames.append(np.array(frame))

    def close(self) -> None:
        self.frames.clear()


def test_single_env_shows_every_observation() -> None:
    pytest.importorskip("pygame", reason="gymnasium renders CartPole with pygame (extra render)")
    screen = RecordingScreen()
    stream, opened = open_rendered("CartPole-v1", {}, lambda rate: screen)
    assert opened is screen
    stream.begin(0)
    for _ in range(4):
        stream.step(np.array([1]))
    stream.close()
    assert len(screen.frames) == 5
    assert screen.frames[0].shape == (400, 600, 3)
    assert (screen.frames[0] != screen.frames[4]).any()


@SLOW
@pytest.mark.parametrize("protocol", a_few(["classic", "sticky"], "classic"))
def test_atari_shows_the_game_that_the_agent_plays(protocol: str) -> None:
    screen = RecordingScreen()
    rates: list[float] = []

    def make_screen(rate: float) -> RecordingScreen:
        rates.append(rate)
        return screen

    stream, _ = open_rendered("ALE/Breakout-v5", {"protocol": protocol}, make_screen)
    assert rates == [ATARI_RATE]
    grey = [stream.begin(5).slots[-1].obs["obs"][0, 0]]
    rng = np.random.default_rng(0)
    for _ in range(400):
        grey.append(stream.step(rng.integers(4, size=1)).slots[-1].obs["obs"][0, 0])
    assert len(screen.frames) == len(grey)
    assert screen.frames[0].shape == (210, 160, 3)
    changes = [(a != b).any() for a, b in pairwise(grey)]
    in_color = [(a != b).any() for a, b in pairwise(screen.frames)]
    assert sum(changes) > 100
    for agent_moved, screen_moved in zip(changes, in_color, strict=True):
        assert screen_moved or not agent_moved
    luminance = np.stack([frame.mean() for frame in screen.frames])
    assert np.corrcoef(luminance, [frame.mean() for frame in grey])[0, 1] > 0.99
    stream.close()


def replace_imageio(
    monkeypatch: pytest.MonkeyPatch, get_writer: Callable[..., Any], get_reader: Callable[..., Any] | None = None
) -> None:
    package, module = ModuleType("imageio"), ModuleType("imageio.v2")
    vars(module).update(get_writer=get_writer, get_reader=get_reader)
    vars(package)["v2"] = module
    monkeypatch.setitem(sys.modules, "imageio", package)
    monkeypatch.setitem(sys.modules, "imageio.v2", module)


def test_video_gets_every_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    class Writer:
        def append_data(self, frame: Frame) -> None:
            written.append(frame)

        def close(self) -> None:
            written.append("closed")

    options: dict[str, Any] = {}

    def get_writer(path: Path, **kwargs: Any) -> Writer:
        options.update(kwargs, path=path)
        return Writer()

    replace_imageio(monkeypatch, get_writer)
    video = VideoFile(tmp_path / "film.mp4", 15.0)
    video.show(np.zeros((4, 4, 3), np.uint8))
    video.close()
    assert options["fps"] == 15.0
    assert len(written) == 2
    assert written[1] == "closed"


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".avi", ".mov"])
def test_a_video_without_ffmpeg_is_refused_before_its_first_frame(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("imageio", reason="it writes the videos (extra video)")
    if find_spec("imageio_ffmpeg") is not None:
        pytest.skip("ffmpeg is installed")
    with pytest.raises(ConfigurationError, match=rf"ffmpeg must be installed to record a {suffix} video"):
        VideoFile(tmp_path / f"film{suffix}", 15.0)


@pytest.mark.parametrize("error", [ValueError, RuntimeError, ImportError])
def test_video_without_ffmpeg_names_the_extra(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_writer(path: Path, **kwargs: Any) -> None:
        raise error("Could not find a backend")

    replace_imageio(monkeypatch, get_writer)
    with pytest.raises(
        ConfigurationError,
        match=r"ffmpeg must be installed to record a .mp4 video, got none. Run pip install 'sb_dqn\[video\]', or .* .gif",
    ):
        VideoFile(tmp_path / "film.mp4", 15.0)


def test_unwritable_video_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def append_data(self, frame: Frame) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    replace_imageio(monkeypatch, lambda path, **kwargs: Full())
    video = VideoFile(tmp_path / "film.mp4", 15.0)
    with pytest.raises(ConfigurationError, match="film.mp4 must be writable, got: No space left"):
        video.show(np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(ConfigurationError, match="film.mp4 must be writable, got: No space left"):
        video.close()


def test_a_disk_that_is_full_after_the_first_clip_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pygame", reason="gymnasium renders CartPole with pygame (extra render)")

    class Writer:
        def __init__(self, path: Path, **_: Any) -> None:
            self.full = (tmp_path / "film" / "step-000000000.mp4").exists()
            path.touch()

        def append_data(self, frame: Frame) -> None:
            if self.full:
                raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    class Frames(list[Frame]):
        def get_meta_data(self) -> dict[str, float]:
            return {"fps": 50.0}

    replace_imageio(monkeypatch, Writer, lambda path: nullcontext(Frames([np.zeros((4, 4, 3), np.uint8)])))
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=20, seed=0, device="cpu")
    film = EveryNTimesteps(20, TrainingFilm(tmp_path, "CartPole-v1", {}))
    with pytest.warns(UserWarning, match="was not written, training continues: No space left") as said:
        model.learn(60, callback=film)
    assert model.num_timesteps == 60
    assert [str(each.message).split()[0] for each in said] == ["film", "training.mp4"]
    assert [path.name for path in (tmp_path / "film").glob("step-*")] == ["step-000000000.mp4"]


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("imageio.v2", lambda: VideoFile(Path("film.mp4"), 15.0), "video"),
        ("pygame", lambda: Window("title", 15.0), "render"),
    ],
)
def test_missing_package_names_its_extra(module: str, make: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=rf'pip install "sb_dqn\[{extra}\]"'):
        make()


def test_window_draws_and_closing_it_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame", reason="the window uses pygame (extra render)")
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


def test_a_window_without_a_display_names_the_video(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame", reason="the window uses pygame (extra render)")
    for variable in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigurationError, match="a display must be available .* got: .* --video film.mp4"):
        Window("title", 15.0)
