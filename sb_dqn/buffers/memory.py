"""How much memory there is, asked before a large allocation is made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch

from sb_dqn.errors import MemoryBudgetError

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def human_bytes(count: float) -> str:
    """`673.6 MiB`: bytes in the binary unit that leaves 1 to 1023 of them."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def available_host_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """Bytes of host memory that can still be used, the container's limit included; None where nobody can say."""
    found = [amount for amount in (_of_machine(meminfo), _of_container(cgroup)) if amount is not None]
    return min(found) if found else None


def available_memory(device: torch.device, path: Path | None = None) -> tuple[int | None, str]:
    """Bytes at hand where a buffer would lie, and the name of that place."""
    if path is not None:
        return shutil.disk_usage(path.parent).free, f"on the disk of {path}"
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0], f"on {device}"
    return available_host_memory(), "in host memory"


def check_budget(needed: int, device: torch.device, path: Path | None, what: str) -> None:
    """Refuses an allocation that cannot fit.

    Raises:
        MemoryBudgetError: `needed` bytes are more than what is at hand.
    """
    at_hand, where = available_memory(device, path)
    if at_hand is not None and needed > at_hand:
        elsewhere = "" if path is not None else ", set buffer_path='file' to keep it in a memory-mapped file on disk"
        raise MemoryBudgetError(
            f"{what} needs {human_bytes(needed)}, {human_bytes(at_hand)} are at hand {where}. "
            f"Lower buffer_size to at most {at_hand / needed:.0%} of what it is{elsewhere}, "
            f"or set frame_stack so that each frame is stored once"
        )


def _of_machine(meminfo: Path) -> int | None:
    """MemAvailable of Linux; elsewhere the physical memory, where the system tells it."""
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf; some systems lack the name
        return None


def _of_container(cgroup: Path) -> int | None:
    """Limit minus use of the control group (v2, then v1), with file cache that the kernel can drop counted as free."""
    for limit, use, cache in (
        (cgroup / "memory.max", cgroup / "memory.current", "inactive_file"),
        (cgroup / "memory/memory.limit_in_bytes", cgroup / "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        if not (limit.is_file() and use.is_file()):
            continue
        text = limit.read_text().strip()
        if text == "max":
            return None
        stat = limit.parent / "memory.stat"
        pairs = (line.split() for line in stat.read_text().splitlines()) if stat.is_file() else iter(())
        droppable = {name: int(value) for name, value in pairs}.get(cache, 0)
        return int(text) - int(use.read_text()) + droppable
    return None
