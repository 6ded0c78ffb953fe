"""Experiments of bsuite (Osband et al. 2020, arXiv 1908.03568) as environments: `bsuite/deep_sea-v0` and 22 others.

An experiment has up to 30 settings, which differ in size, scale, or only in their random numbers: `setting=0` is the first.
The score of an experiment is the regret of an agent while it learns, in each setting for `num_episodes` episodes.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import gymnasium
import numpy as np
from gymnasium import register, spaces

from sb_dqn.checks import check_int
from sb_dqn.errors import import_extra
from sb_dqn.types import ResetResult, StepResult

NAMESPACE = "bsuite/"


def register_bsuite() -> None:
    """Registers the experiments with gymnasium."""
    sweep: Any = import_extra("bsuite.sweep", "bsuite", "for its experiments")
    for experiment in dict.fromkeys(bsuite_id.split("/")[0] for bsuite_id in sweep.SWEEP):
        env_id = f"{NAMESPACE}{experiment}-v0"
        if env_id not in gymnasium.registry:
            register(env_id, f"{__name__}:{BsuiteTask.__name__}", kwargs={"experiment": experiment})


class BsuiteTask(gymnasium.Env[Any, int]):
    """Experiment of bsuite, an environment of dm_env, with flat observations `[N]` float32.

    `reset(seed=...)` seeds the random numbers; two settings with the same seed draw different ones. The transitions of
    `deep_sea_stochastic` cannot be seeded. Experiments with MNIST read its images from /tmp/mnist, to which bsuite downloads them.
    bsuite 0.3.6 keeps their pixels in signed bytes, in which bright ones are negative; here they are from 0 to 1.

    Args:
        experiment: name of the experiment.
        setting: number of the setting, from 0.

    Raises:
        ConfigurationError: the experiment has no such setting.
    """

    def __init__(self, experiment: str, setting: int = 0) -> None:
        sweep: Any = import_module("bsuite.sweep")
        found = [bsuite_id for bsuite_id in sweep.SWEEP if bsuite_id.split("/")[0] == experiment]
        self.setting = check_int("setting", setting, 0, len(found) - 1)
        self.bsuite_id = found[self.setting]
        self.experiment = experiment
        self.env = self.load()
        shape = self.env.observation_spec().shape
        self.observation_space = spaces.Box(-np.inf, np.inf, (int(np.prod(shape)),), np.float32)
        self.action_space: Any = spaces.Discrete(int(self.env.action_spec().num_values))
        self.num_episodes = int(sweep.EPISODES[self.bsuite_id])

    def load(self, seed: int | None = None) -> Any:
        """Loads the task; its random numbers follow from `seed`."""
        bsuite: Any = import_module("bsuite.bsuite")
        settings = dict(import_module("bsuite.sweep").SETTINGS[self.bsuite_id])
        if "seed" in inspect.signature(bsuite.EXPERIMENT_NAME_TO_ENVIRONMENT[self.experiment]).parameters:
            settings["seed"] = seed
        return bsuite.load(self.experiment, settings)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        super().reset(seed=seed)
        if seed is not None:
            self.env = self.load(int(np.random.SeedSequence([seed, self.setting]).generate_state(1)[0]))
        return self._flat(self.env.reset()), {}

    def step(self, action: int) -> StepResult:
        step = self.env.step(int(action))
        ended = bool(step.last())
        return self._flat(step), float(step.reward), ended and step.discount == 0, ended and step.discount != 0, {}

    def _flat(self, step: Any) -> Any:
        obs = np.asarray(step.observation, np.float32).reshape(-1)
        return np.where(obs < 0, obs + 256 / 255, obs) if "mnist" in self.experiment else obs  # bytes without a sign
