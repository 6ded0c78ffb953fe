"""Callbacks: monitor, control and stop training."""

from sb_dqn.callbacks.base import BaseCallback, Every, Trainer
from sb_dqn.callbacks.checkpoints import CheckpointCallback
from sb_dqn.callbacks.compose import (
    CallbackList,
    ConvertCallback,
    EventCallback,
    EveryNTimesteps,
    LogEveryNTimesteps,
    as_callback,
)
from sb_dqn.callbacks.diagnose import DiagnoseCallback
from sb_dqn.callbacks.evaluation import EvalCallback
from sb_dqn.callbacks.mlflow_callback import MLflowCallback
from sb_dqn.callbacks.progress import ProgressBarCallback
from sb_dqn.callbacks.stopping import (
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
)
from sb_dqn.callbacks.wandb_callback import WandbCallback

__all__ = [
    "BaseCallback",
    "CallbackList",
    "CheckpointCallback",
    "ConvertCallback",
    "DiagnoseCallback",
    "EvalCallback",
    "EventCallback",
    "Every",
    "EveryNTimesteps",
    "LogEveryNTimesteps",
    "MLflowCallback",
    "ProgressBarCallback",
    "StopTrainingOnMaxEpisodes",
    "StopTrainingOnNoModelImprovement",
    "StopTrainingOnRewardThreshold",
    "Trainer",
    "WandbCallback",
    "as_callback",
]
