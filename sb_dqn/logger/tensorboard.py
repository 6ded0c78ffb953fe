"""TensorBoard sink of the logger."""

from __future__ import annotations

import os
from typing import Any

from sb_dqn.logger.entries import Media, included
from sb_dqn.logger.sinks import KVWriter, is_array


class TensorBoardOutputFormat(KVWriter):
    """Writes numbers as scalars, text as text, arrays as histograms, and videos, figures, images and hyperparameters."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # imported here, since importing TensorBoard and torch takes seconds
        from torch.utils.tensorboard.writer import SummaryWriter

        self.writer: Any = SummaryWriter(log_dir=os.fspath(folder))

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes the entries at this step."""
        for key, value in included(key_values, key_excluded, "tensorboard").items():
            self._write_one(key, value, step)
        self.writer.flush()

    def close(self) -> None:
        """Closes the event file."""
        self.writer.close()

    def _write_one(self, key: str, value: Any, step: int) -> None:
        match value:
            case int() | float():
                self.writer.add_scalar(key, float(value), step)
            case str():
                self.writer.add_text(key, value, step)
            case Media():
                value.write(self.writer, key, step)
            case _ if is_array(value):
                self._write_histogram(key, value, step)

    def _write_histogram(self, key: str, array: Any, step: int) -> None:
        import numpy as np

        finite = array[np.isfinite(array)]  # TensorBoard cannot bin NaN and infinity
        if finite.size:
            self.writer.add_histogram(key, finite, step)
