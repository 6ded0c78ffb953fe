"""Tests and measurements on a CUDA device: `scripts/gpu`, or `scripts/gpu --help`.

Each stage runs in a process of its own with a time limit and adds one JSON line to the output file when it ends, so an
interrupted run keeps what it has. A stage that needs CUDA is reported as "not run" on a machine without it.

`--rehearse` runs the code of all stages on the CPU, with small batches and few steps. Its stages are "rehearsed", never
"passed", and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # so that this runs as a file, from anywhere

from scripts.benchmarks.gpu_models import GRAPHS, RATES, TRAINING, UPDATES  # noqa: E402
from scripts.benchmarks.gpu_stages import PREFIX, STAGES, Setup  # noqa: E402

WHEELS = (
    "gymnasium", "ale-py", "farama-notifications", "stable-baselines3", "cloudpickle", "safetensors", "pytest",
    "pytest-timeout", "iniconfig", "pluggy", "packaging", "pygments", "hypothesis", "sortedcontainers",
)  # fmt: skip
"""Packages that machines with PyTorch often lack."""


def run_stage(name: str, setup: Setup, timeout: float) -> dict[str, Any]:
    """Runs one stage in a process of its own and returns its line.

    Args:
        name: of `STAGES`.
        setup: the device, and what to measure.
        timeout: seconds; the stage may have a shorter limit.
    """
    stage = STAGES[name]
    if stage.needs_cuda and setup.device == "cpu" and not setup.rehearse:
        return {"stage": name, "status": "not run", "why": "no CUDA device"}
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", name, "--device", setup.device]
    command += ["--rehearse"] * setup.rehearse + (["--names", *setup.names] if setup.names else [])
    limit, start = min(stage.limit, timeout), time.perf_counter()
    code, output = run_with_children(command, limit)
    figures = last_figures(output)
    failures = [value for value in figures.values() if isinstance(value, str)]
    line: dict[str, Any] = {"stage": name, "status": "rehearsed" if setup.rehearse else "passed"}
    if code is None:
        line |= {"status": "failed", "why": f"not finished after {limit:.0f} s", "output": output[-4000:]}
    elif code != 0:
        line |= {"status": "failed", "why": output[-4000:]}
    elif failures:
        line |= {"status": "failed", "why": "some figures could not be measured"}
    return {**line, "seconds": round(time.perf_counter() - start, 1), "figures": figures}


def run_with_children(command: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Runs a command; returns its exit status, None if it was ended with all its processes after `limit` seconds, and its output."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):  # none is left
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace")


def last_figures(output: str) -> dict[str, Any]:
    """Returns the figures of the last whole line of output that has some; the end of a process may cut a line."""
    for line in reversed(output.splitlines()):
        if line.startswith(PREFIX):
            with contextlib.suppress(json.JSONDecodeError):
                figures: dict[str, Any] = json.loads(line.removeprefix(PREFIX))
                return figures
    return {}


def pack(python: str, folder: Path) -> None:
    """Downloads the wheels of `WHEELS` for another Python on x86-64 Linux."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in (17, 24, 27, 28, 31, 34)] + ["manylinux2014_x86_64"]
    options = [option for platform in platforms for option in ("--platform", platform)]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        python,
    ]
    subprocess.run([*command, "--implementation", "cp", *options, "-d", str(folder), *WHEELS], check=True)
    print(f"{len(list(folder.glob('*.whl')))} wheels in {folder}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the stages and writes their lines; 1 if a stage failed."""
    options = _parse(arguments)
    if options.command == "pack":
        pack(options.python, options.wheels)
        return 0
    device = options.device or _default_device(options.rehearse)
    setup = Setup(device, options.rehearse, tuple(options.names))
    if options.worker is not None:
        STAGES[options.worker].measure(setup).print()
        return 0
    end = time.monotonic() + 60 * options.minutes
    failed = False
    for name in options.stages:
        line = run_stage(name, setup, max(end - time.monotonic(), 1.0))
        failed |= line["status"] == "failed"
        print(json.dumps(line), flush=True)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return int(failed)


def _default_device(rehearse: bool) -> str:
    import torch

    return "cuda" if torch.cuda.is_available() and not rehearse else "cpu"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", nargs="?", default="run", choices=["run", "pack"])
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES), metavar="STAGE")
    rows = {name for table in (UPDATES, TRAINING, RATES, GRAPHS) for name in table}
    parser.add_argument("--names", nargs="+", default=(), choices=rows, metavar="NAME", help="rows that are measured")
    folder = Path(os.environ.get("OUT", ROOT))
    parser.add_argument("--out", type=Path, default=folder / "gpu.jsonl", help="JSON lines are added to it")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all stages together")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: CUDA if there is one")
    parser.add_argument("--rehearse", action="store_true", help="run the code of all stages on the CPU, in small")
    parser.add_argument("--python", default="3.12", help="of the machine that `pack` downloads for")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".wheels")
    parser.add_argument("--worker", choices=list(STAGES), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
