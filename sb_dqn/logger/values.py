"""What can be logged beside numbers and text, and how a value becomes plain at the moment it is written."""

from __future__ import annotations

import abc
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sb_dqn.errors import ConfigurationError


class Media(abc.ABC):
    """What only TensorBoard can show."""

    name: ClassVar[str]
    """For messages."""

    @abc.abstractmethod
    def show(self, writer: Any, key: str, step: int) -> None:
        """Hands it to a `SummaryWriter`."""


@dataclass
class Video(Media):
    """Frames `[N, T, C, H, W]` and their rate in frames per second."""

    name = "video"
    frames: Any
    fps: float

    def show(self, writer: Any, key: str, step: int) -> None:
        writer.add_video(key, self.frames, step, self.fps)


@dataclass
class Figure(Media):
    """A matplotlib figure, and whether to close it once it is logged."""

    name = "figure"
    figure: Any
    close: bool

    def show(self, writer: Any, key: str, step: int) -> None:
        writer.add_figure(key, self.figure, step, close=self.close)


@dataclass
class Image(Media):
    """An image and the meaning of its axes: `CHW`, `HWC`, `HW`, `NCHW` ..."""

    name = "image"
    image: Any
    dataformats: str

    def show(self, writer: Any, key: str, step: int) -> None:
        writer.add_image(key, self.image, step, dataformats=self.dataformats)


@dataclass
class HParam(Media):
    """Hyper-parameters of the run and the metrics by which TensorBoard compares runs (at least one).

    A hyper-parameter that is neither a number nor text (a schedule, a function, a list) is shown as text.
    """

    name = "hparam"
    hparam_dict: Mapping[str, Any]
    metric_dict: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.metric_dict:
            raise ConfigurationError(
                "HParam needs at least one entry in metric_dict, or TensorBoard shows nothing of it"
            )

    def show(self, writer: Any, key: str, step: int) -> None:
        # Imported here: TensorBoard and torch cost seconds, and most sinks need neither.
        from torch.utils.tensorboard import summary as summaries

        make: Any = summaries.hparams  # without types
        shown = {name: _showable(plain(value)) for name, value in self.hparam_dict.items()}
        # Not writer.add_hparams: that one opens a second run folder.
        for summary in make(shown, dict(self.metric_dict)):
            writer.file_writer.add_summary(summary)


def _showable(value: Any) -> str | float | None:
    return value if isinstance(value, str | float | int | None) else str(value)


class FormatUnsupportedError(ConfigurationError):
    """A value that this sink cannot write; leave the sink out with `exclude=` of `record`."""

    def __init__(self, unsupported_formats: Sequence[str], value_description: str) -> None:
        many = len(unsupported_formats) > 1
        super().__init__(
            f"The format{'s' if many else ''} {', '.join(unsupported_formats)} cannot write the {value_description} "
            f"that was logged; leave {'them' if many else 'it'} out: record(..., exclude={tuple(unsupported_formats)})"
        )


def plain(value: Any) -> Any:
    """A 0-d tensor, a 0-d array or a numpy number as a Python number; a larger tensor as a numpy array; else the value.

    Reads a tensor back from its device: a sync point, which is why it happens at `dump` and not at `record`.
    """
    # Looked up and not imported: a value of a package that was never imported cannot be at hand.
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.ndim == 0:
            return value.item()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)) and value.ndim == 0:
        return value.item()
    return value


def included(
    key_values: Mapping[str, Any], key_excluded: Mapping[str, tuple[str, ...]], *formats: str
) -> dict[str, Any]:
    """The entries that are not excluded from a sink of one of these names.

    Raises:
        FormatUnsupportedError: one of them is a video, figure, image or HParam, and the sink writes text.
    """
    chosen = {key: value for key, value in key_values.items() if not set(formats) & set(key_excluded.get(key) or ())}
    if "tensorboard" not in formats:
        for value in chosen.values():
            if isinstance(value, Media):
                raise FormatUnsupportedError(list(formats), value.name)
    return chosen
