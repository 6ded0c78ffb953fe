"""Where the wall-clock of `sb-dqn compare` went."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sb_dqn.cli.fleet import Job
from sb_dqn.cli.results import Result, read_result


class Spent:
    """Measures from its making on.

    Args:
        jobs: that are about to run; some may have learned before.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs, self.started = jobs, time.monotonic()
        self.before = sum(_result_of(job).seconds for job in jobs)

    def describe(self, at_once: int) -> str:
        """Returns one line: the wall-clock, and how much of it was training and evaluation."""
        wall = time.monotonic() - self.started
        results = [_result_of(job) for job in self.jobs]
        training = sum(result.seconds for result in results) - self.before
        playing = sum(result.evaluation.seconds for result in results if result.evaluation is not None)
        share = f"{training:,.0f} s of training and {playing:,.0f} s of final episodes"
        count = f"{len(self.jobs)} run{'s' * (len(self.jobs) > 1)}"
        if at_once > 1:
            return (
                f"{count}, {at_once} at a time, took {wall:,.0f} s; together they had {share}, the rest is the start (imports) "
                f"and end of their processes"
            )
        rest = max(wall - training - playing, 0.0)
        return f"{count} took {wall:,.0f} s: {share}, and {rest:,.0f} s in which processes started (imports) and ended"


def _result_of(job: Job) -> Result:
    return read_result(job.folder or job.home)
