"""Logging to the terminal, text, CSV, JSON and TensorBoard. The import loads neither torch nor TensorBoard."""

from __future__ import annotations

from sb_dqn.logger.core import DEBUG, DISABLED, ERROR, INFO, WARN, Logger, configure
from sb_dqn.logger.csv_sink import CSVOutputFormat
from sb_dqn.logger.entries import Figure, FormatUnsupportedError, HParam, Image, Video
from sb_dqn.logger.sinks import HumanOutputFormat, JSONOutputFormat, KVWriter, SeqWriter, TensorBoardOutputFormat

__all__ = [
    "DEBUG",
    "DISABLED",
    "ERROR",
    "INFO",
    "WARN",
    "CSVOutputFormat",
    "Figure",
    "FormatUnsupportedError",
    "HParam",
    "HumanOutputFormat",
    "Image",
    "JSONOutputFormat",
    "KVWriter",
    "Logger",
    "SeqWriter",
    "TensorBoardOutputFormat",
    "Video",
    "configure",
]
