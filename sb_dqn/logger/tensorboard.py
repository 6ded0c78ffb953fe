"""Entries as TensorBoard events."""

from __future__ import annotations

import os
from typing import Any

from sb_dqn.logger.sinks import KVWriter, is_array
from sb_dqn.logger.values import Figure, HParam, Image, Video, included


class TensorBoardOutputFormat(KVWriter):
    """Numbers as scalars, text as text, arrays as histograms, and video, figure, image and hyper-parameters as such."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # Imported here: TensorBoard and torch cost seconds, and most sinks need neither.
        from torch.utils.tensorboard.writer import SummaryWriter

        self.writer: Any = SummaryWriter(log_dir=os.fspath(folder))

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes all entries at this step."""
        for key, value in included(key_values, key_excluded, "tensorboard").items():
            self._write_one(key, value, step)
        self.writer.flush()

    def close(self) -> None:
        """Closes the event file."""
        self.writer.close()

    def _write_one(self, key: str, value: Any, step: int) -> None:
        if isinstance(value, (bool, int, float)):
            self.writer.add_scalar(key, float(value), step)
        elif isinstance(value, str):
            self.writer.add_text(key, value, step)
        elif is_array(value):
            self._write_histogram(key, value, step)
        elif isinstance(value, Video):
            self.writer.add_video(key, value.frames, step, value.fps)
        elif isinstance(value, Figure):
            self.writer.add_figure(key, value.figure, step, close=value.close)
        elif isinstance(value, Image):
            self.writer.add_image(key, value.image, step, dataformats=value.dataformats)
        elif isinstance(value, HParam):
            self._write_hparams(value)

    def _write_histogram(self, key: str, array: Any, step: int) -> None:
        import numpy as np

        finite = array[np.isfinite(array)]  # the bins of anything else cannot be drawn
        if finite.size:
            self.writer.add_histogram(key, finite, step)

    def _write_hparams(self, value: HParam) -> None:
        from torch.utils.tensorboard import summary as summaries

        make: Any = summaries.hparams  # without types
        # Not writer.add_hparams: that one opens a second run folder.
        for summary in make(dict(value.hparam_dict), dict(value.metric_dict)):
            self.writer.file_writer.add_summary(summary)
