"""Description of the machine and the package versions behind the measured figures."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "numpy", "gymnasium", "ale-py", "stable-baselines3")


def machine() -> dict[str, str]:
    """Processor, cores that this process may use, memory, system, C++ compiler, load."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    compiler = next((name for name in ("g++", "c++", "clang++") if shutil.which(name)), "none")
    return {
        "processor": _proc("cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": str(cores),
        "memory": _memory(),
        "system": platform.platform(),
        "C++ compiler": compiler,
        "load average": load(),
    }


def load() -> str:
    """Runnable processes, averaged over 1, 5 and 15 minutes: figures need a machine with nothing else to do."""
    return " ".join(f"{value:.2f}" for value in os.getloadavg())


def finish_kernels() -> None:
    """Waits for CUDA, if there is one, so that a time includes all that was started."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def versions() -> dict[str, str]:
    """Python, this library, and the packages that matter; those not installed say so."""
    from sb_dqn.version import __version__

    found = {"python": platform.python_version(), "sb_dqn": __version__}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def describe() -> str:
    """Both, as lines."""
    facts = {**machine(), "versions": ", ".join(f"{name} {version}" for name, version in versions().items())}
    return "\n".join(f"{name:14}{value}" for name, value in facts.items())


def _memory() -> str:
    total = _proc("meminfo", "MemTotal")  # in kB
    return f"{int(total.split()[0]) / 2**20:.1f} GiB" if total else "unknown"


def _proc(file: str, key: str) -> str:
    path = Path("/proc") / file
    if not path.is_file():
        return ""
    lines = (line.partition(":") for line in path.read_text(encoding="utf-8").splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")
