"""At which addresses processes listen (Linux)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1, also in the form of IPv6, and ::1, as in /proc/net/tcp."""


def descendants(root: int) -> list[int]:
    """Returns a process and all that it has started."""
    parents = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def listening(processes: list[int]) -> list[str]:
    """Returns the addresses at which processes listen, in the form of /proc/net/tcp."""
    sockets = set()
    for process in processes:
        for file in Path(f"/proc/{process}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(file))
    lines = [
        line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
    ]
    return [line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]
