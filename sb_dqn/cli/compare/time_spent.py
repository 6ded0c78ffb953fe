"""Wall-clock report of `sb-dqn compare`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sb_dqn.runs.jobs import Job


class TimeReport:
    """Wall-clock time since its construction, and the share of training and evaluation.

    Args:
        jobs: runs that are about to start; resumed ones have training time already.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.started = time.monotonic()
        self.earlier_seconds = sum(job.result.seconds for job in jobs)

    def describe(self, n_parallel: int) -> str:
        """Returns one line with the wall-clock time and its shares.

        Args:
            n_parallel: number of runs at a time.
        """
        wall = time.monotonic() - self.started
        results = [job.result for job in self.jobs]
        training = sum(result.seconds for result in results) - self.earlier_seconds
        playing = sum(result.evaluation.seconds for result in results if result.evaluation is not None)
        share = f"{training:,.0f} s of training and {playing:,.0f} s of final episodes"
        count = f"{len(self.jobs)} run{'s' * (len(self.jobs) > 1)}"
        if n_parallel > 1:
            return (
                f"{count}, {n_parallel} at a time, took {wall:,.0f} s; in total {share}, the rest is the start (imports) and "
                f"end of their processes"
            )
        rest = max(wall - training - playing, 0.0)
        return f"{count} took {wall:,.0f} s: {share}, and {rest:,.0f} s to start (imports) and end processes"
