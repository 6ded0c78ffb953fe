"""Benchmarks of this library against its peers on this machine: `scripts/bench`, or `scripts/bench --help`.

Each measurement runs in its own process, so that thread counts and caches are clean. In every round all measurements of a
benchmark are taken in turn (ours, peer, ours, peer ...), and ratios are computed within a round: a temporary slowdown of
the machine affects both sides. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # so that this runs as a file, from anywhere

from scripts.benchmarks.machine import describe, load, machine, versions  # noqa: E402 - found by the line above
from scripts.benchmarks.measurements import Benchmark, Measurement  # noqa: E402
from scripts.benchmarks.suite import FULL, QUICK, suite  # noqa: E402
from scripts.benchmarks.table import Finding, compare, number, report  # noqa: E402

LIMIT = 1800.0
"""Seconds after which a measurement is given up."""


def measure(measurement: Measurement, device: str = "cpu") -> dict[str, float]:
    """Its figures by series, taken in a fresh process.

    Raises:
        RuntimeError: it failed, and what it wrote is on stderr; or it cannot run on the device.
    """
    arguments = dict(measurement.arguments)
    if device != "cpu":
        if "device" not in inspect.signature(_function(measurement.function)).parameters:
            raise RuntimeError("it runs on the CPU only")
        arguments["device"] = device
    task = json.dumps({"function": measurement.function, "arguments": arguments})
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", task]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"not finished after {LIMIT:.0f} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"exit status {done.returncode}")
    figures: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {f"{measurement.name} {key}".strip(): value for key, value in figures.items()}


def work(task: str) -> None:
    """The other end of `measure`: calls one function of this folder and prints what it returns."""
    parsed = json.loads(task)
    print(f"\n{json.dumps(_function(parsed['function'])(**parsed['arguments']))}")


def _function(name: str) -> Any:
    """Returns the function of a measurement, `module.function` of this folder."""
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"scripts.benchmarks.{module}"), function)


def run_benchmark(benchmark: Benchmark, rounds: int, device: str = "cpu") -> tuple[list[dict[str, float]], list[str]]:
    """The figures of every round, and what could not be measured; what fails once is not tried again."""
    found: list[dict[str, float]] = [{} for _ in range(rounds)]
    failures: dict[str, str] = {
        one.name: f"{one.peer} is not installed: pip install 'sb_dqn[bench]'"
        for one in benchmark.measurements
        if one.peer is not None and find_spec(one.peer) is None
    }
    for index, figures in enumerate(found):
        for one in benchmark.measurements:
            if one.name in failures:
                continue
            start = time.perf_counter()
            try:
                new = measure(one, device)
            except (RuntimeError, ValueError, IndexError) as error:
                failures[one.name] = str(error)
                continue
            figures |= new
            said = ", ".join(f"{name} {number(value)}" for name, value in new.items())
            _say(f"{benchmark.name} {index + 1}/{rounds}: {said} ({time.perf_counter() - start:.0f} s)")
    return found, [f"{benchmark.name}, {name}: {why}" for name, why in failures.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 if something could not be measured (a figure short of its target is no error)."""
    options = _parse(arguments)
    if options.worker is not None:
        work(options.worker)
        return 0
    scale = QUICK if options.quick else FULL
    chosen = [one for one in suite(scale) if not options.names or one.name in options.names]
    rounds = options.rounds or (1 if options.quick else 5)
    record: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "quick": options.quick,
        "device": options.device,
        "benchmarks": {},
    }
    header, reports, failures = describe(), [], []
    _say(header)
    start = time.perf_counter()
    for benchmark in chosen:
        figures, failed = run_benchmark(benchmark, rounds, options.device)
        compared = [one.without_bounds() if options.quick else one for one in benchmark.comparisons]
        findings = [compare(one, figures, benchmark.less_is_better) for one in compared]
        reports.append(report(benchmark.name, benchmark.unit, figures, findings))
        failures += failed
        record["benchmarks"][benchmark.name] = _entry(benchmark, figures, findings)
        if options.json is not None:  # after each, so that an interrupted run leaves what it has
            options.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    closing = f"{time.perf_counter() - start:.0f} s, load average at the end {load()}"
    note = "quick: sizes too small for figures, so there are no targets\n" if options.quick else ""
    print("\n\n".join([header, *reports, f"{note}{closing}"]))
    for failure in failures:
        _say(f"not measured: {failure}")
    return 1 if failures else 0


def _entry(benchmark: Benchmark, figures: list[dict[str, float]], findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "unit": benchmark.unit,
        "rounds": figures,
        "comparisons": [
            {
                "label": one.comparison.label,
                "ours": one.ours,
                "peer": one.peer,
                **(one.spread._asdict() if one.spread is not None else {}),
                "at_least": one.comparison.at_least,
                "at_most": one.comparison.at_most,
                "met": one.met,
            }
            for one in findings
        ],
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    known = [one.name for one in suite(FULL)]
    parser = argparse.ArgumentParser(prog="scripts/bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(known)}; none: all of them")
    parser.add_argument("--rounds", type=int, help="of every measurement (default 5, with --quick 1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything that was measured to a file")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two minutes: does it run? No figures.")
    parser.add_argument(
        "--device", default="cpu", help="of the networks, for training and updates; the other benchmarks run on the CPU"
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds {options.rounds} is not allowed; give 1 or more")
    return options


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
