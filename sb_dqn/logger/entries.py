"""Log entries: media types, conversion to Python values and exclusion from sinks."""

from __future__ import annotations

import abc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sb_dqn.errors import ConfigurationError

if TYPE_CHECKING:
    from sb_dqn.types import Settings


class Media(abc.ABC):
    """Value that text cannot display."""

    name: ClassVar[str]
    """Name in messages."""

    @abc.abstractmethod
    def write(self, writer: Any, key: str, step: int) -> None:
        """Writes the value to a `SummaryWriter`."""

    def write_file(self, folder: Path) -> Path | None:
        """Writes the value as a picture (.png) or an animation (.gif) to a folder; returns its path, None for other media."""
        return None


@dataclass
class Video(Media):
    """Video frames `[N, T, C, H, W]` and the frame rate in frames per second."""

    name = "video"
    frames: Any
    fps: float

    def write(self, writer: Any, key: str, step: int) -> None:
        writer.add_video(key, self.frames, step, self.fps)

    def write_file(self, folder: Path) -> Path:
        from PIL import Image as Pictures  # imported here, since most runs have no media

        videos = _bytes(self.frames).transpose(1, 3, 0, 4, 2)  # the N videos next to each other: [T, H, N, W, C]
        frames = videos.reshape(*videos.shape[:2], -1, videos.shape[-1])
        first, *rest = (Pictures.fromarray(_squeezed(frame)) for frame in frames)
        path = folder / "video.gif"
        first.save(path, save_all=True, append_images=rest, duration=1000 / self.fps, loop=0)
        return path


@dataclass
class Figure(Media):
    """Matplotlib figure, closed after logging if `close` is True."""

    name = "figure"
    figure: Any
    close: bool

    def write(self, writer: Any, key: str, step: int) -> None:
        writer.add_figure(key, self.figure, step, close=self.close)

    def write_file(self, folder: Path) -> Path:
        path = folder / "figure.png"
        self.figure.savefig(path)
        if self.close:
            from matplotlib import pyplot

            pyplot.close(self.figure)
        return path


@dataclass
class Image(Media):
    """Image and the order of its axes: `CHW`, `HWC`, `HW`, `NCHW` ..."""

    name = "image"
    image: Any
    dataformats: str

    def write(self, writer: Any, key: str, step: int) -> None:
        writer.add_image(key, self.image, step, dataformats=self.dataformats)

    def write_file(self, folder: Path) -> Path:
        from PIL import Image as Pictures  # imported here, since most runs have no media

        axes = self.dataformats.upper()
        image = _bytes(self.image).transpose([axes.index(axis) for axis in "HNWC" if axis in axes])
        if "N" in axes:  # next to each other
            image = image.reshape(image.shape[0], -1, *image.shape[3:])
        path = folder / "image.png"
        Pictures.fromarray(_squeezed(image)).save(path)
        return path


@dataclass
class HParam(Media):
    """Hyperparameters of the run and the metrics by which TensorBoard compares runs (at least one).

    A hyperparameter that is neither a number nor text (a schedule, a function, a list) is converted to text.
    """

    name = "hparam"
    hparam_dict: Settings
    metric_dict: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.metric_dict:
            raise ConfigurationError(
                f"metric_dict must have at least one entry, got {self.metric_dict!r}. Add one: TensorBoard does not "
                f"display an HParam without metrics."
            )

    def write(self, writer: Any, key: str, step: int) -> None:
        # imported here, since importing TensorBoard and torch takes seconds
        from torch.utils.tensorboard import summary as summaries

        make_summaries: Any = summaries.hparams  # without types
        hparams = {name: _text_or_number(plain(value)) for name, value in self.hparam_dict.items()}
        # writer.add_hparams would open a second run folder
        for summary in make_summaries(hparams, dict(self.metric_dict)):
            writer.file_writer.add_summary(summary)


def _bytes(pixels: object) -> Any:
    """Returns pixels as bytes; floats are in [0, 1], as in TensorBoard."""
    import numpy as np

    array = np.asarray(plain(pixels))
    if array.dtype.kind == "f":
        array = np.rint(array * 255)
    return array.clip(0, 255).astype(np.uint8)


def _squeezed(image: Any) -> Any:
    """Returns an image `[H, W, C]` or `[H, W]` without the axis of a single channel."""
    return image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image


def _text_or_number(value: object) -> str | float | None:
    return value if isinstance(value, str | float | int | None) else str(value)


MEDIA: dict[str, type[Media]] = {cls.__name__: cls for cls in (Video, Figure, Image, HParam)}


class FormatUnsupportedError(ConfigurationError):
    """Raised for a value that a sink cannot write; exclude the sink with `exclude=` of `record`."""

    def __init__(self, unsupported_formats: Sequence[str], value_description: str) -> None:
        plural = "s" if len(unsupported_formats) > 1 else ""
        super().__init__(
            f"The format{plural} {', '.join(unsupported_formats)} cannot write the {value_description} that was logged. "
            f"Exclude the format{plural}: record(..., exclude={tuple(unsupported_formats)})."
        )


def plain(value: Any) -> Any:
    """Converts 0-d tensors, 0-d arrays and NumPy numbers to Python numbers, and other tensors to NumPy arrays.

    The media types of Stable-Baselines3's logger, which have the same names and fields, become those of this module.

    Copying a tensor to the host synchronizes with its device, so this happens at `dump` and not at `record`.
    """
    # not imported here: without an import by the caller, `value` cannot be one of their objects
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.ndim == 0:
            return value.item()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)) and value.ndim == 0:
        return value.item()
    if type(value).__module__ == "stable_baselines3.common.logger" and type(value).__name__ in MEDIA:
        return MEDIA[type(value).__name__](**vars(value))
    return value


def included(key_values: Settings, key_excluded: Mapping[str, tuple[str, ...]], *formats: str) -> dict[str, Any]:
    """Returns the entries that are not excluded from a sink with one of the names `formats`.

    Raises:
        FormatUnsupportedError: an entry is a video, figure, image or HParam, and the sink writes text.
    """
    entries = {key: value for key, value in key_values.items() if not set(formats) & set(key_excluded.get(key) or ())}
    if "tensorboard" not in formats:
        for value in entries.values():
            if isinstance(value, Media):
                raise FormatUnsupportedError(list(formats), value.name)
    return entries
