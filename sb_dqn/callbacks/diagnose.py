"""Diagnosis callback: measures the model at intervals, and names what keeps it from learning."""

from __future__ import annotations

from typing import Any

from sb_dqn.callbacks.base import BaseCallback, Every


class DiagnoseCallback(BaseCallback):
    """Runs `model.diagnose()` whenever `num_timesteps` crosses a multiple of `every`.

    The measures are in the next log line, as `diagnose/<name>`. The training is the same with and without it, bit for bit.

    Attributes: `diagnosis`, the latest diagnosis, or None before the first.

    Args:
        every: environment steps over all lanes between two looks, >= 1.
        verbose: 1 prints each kind of finding once.

    Raises:
        ConfigurationError: `every` is no whole number >= 1.
    """

    def __init__(self, every: int = 10_000, verbose: int = 1) -> None:
        super().__init__(verbose)
        self.diagnosis: Any = None
        self._every = Every(every, "every")
        self._printed: set[str] = set()

    def _on_training_start(self) -> None:
        self._every.begin(self.num_timesteps)

    def _on_step(self) -> bool:
        model: Any = self.model
        if model.rank or not self._every.crossed(self.num_timesteps):
            return True  # of several learners, the first looks
        self.diagnosis = model.diagnose(since=self.diagnosis)
        for name, value in self.diagnosis.values.items():
            self.logger.record(f"diagnose/{name}", value, exclude="stdout")
        for finding in self.diagnosis.findings:
            if self.verbose and finding.name not in self._printed:
                print(f"diagnose at step {self.num_timesteps:,}: {finding.sentence}")
            self._printed.add(finding.name)
        return True
