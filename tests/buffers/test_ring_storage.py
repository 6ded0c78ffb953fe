"""Memory checks before allocation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sb_dqn.buffers.ring_layout import human_bytes
from sb_dqn.buffers.ring_storage import available_host_memory, available_memory, check_budget
from sb_dqn.errors import MemoryBudgetError

CPU = torch.device("cpu")


def machine(folder: Path, available_kib: int) -> Path:
    path = folder / "meminfo"
    path.write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {available_kib} kB\n")
    return path


def test_the_smaller_of_machine_and_container_limits(tmp_path: Path) -> None:
    meminfo = machine(tmp_path, 1000)
    assert available_host_memory(meminfo, tmp_path / "none") == 1000 * 1024
    group = tmp_path / "v2"
    group.mkdir()
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("5000\n")
    assert available_host_memory(meminfo, group) == 1000 * 1024
    (group / "memory.max").write_text("9000\n")
    assert available_host_memory(meminfo, group) == 4000
    (group / "memory.stat").write_text("anon 3000\ninactive_file 1500\n")
    assert available_host_memory(meminfo, group) == 5500


def test_control_groups_of_version_one(tmp_path: Path) -> None:
    group = tmp_path / "memory"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text("8000")
    (group / "memory.usage_in_bytes").write_text("3000")
    (group / "memory.stat").write_text("total_inactive_file 1000\n")
    assert available_host_memory(machine(tmp_path, 1000), tmp_path) == 6000


def test_physical_memory_is_used_without_proc(tmp_path: Path) -> None:
    found = available_host_memory(tmp_path / "none", tmp_path / "none")
    assert found is None or found > 2**26


def test_the_error_names_bytes_and_fixes(tmp_path: Path) -> None:
    with pytest.raises(MemoryBudgetError) as caught:
        check_budget(2**60, CPU, None, "a replay buffer of 9 rows")
    for part in (
        "a replay buffer of 9 rows needs 1048576.0 TiB, but only ",
        "in host memory",
        "buffer_size",
        "buffer_path",
        "frame_stack",
    ):
        assert part in str(caught.value)
    with pytest.raises(MemoryBudgetError, match="on the disk of") as on_disk:
        check_budget(2**60, CPU, tmp_path / "replay.bin", "it")
    assert "buffer_path=" not in str(on_disk.value)


def test_an_allocation_that_fits_passes(tmp_path: Path) -> None:
    check_budget(1024, CPU, None, "it")
    check_budget(1024, CPU, tmp_path / "replay.bin", "it")
    assert available_memory(CPU, tmp_path / "replay.bin")[1].startswith("on the disk of")


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 bytes"), (2048, "2.0 KiB"), (706_300_000, "673.6 MiB"), (2**40 * 3, "3.0 TiB")]
)
def test_human_bytes(count: int, text: str) -> None:
    assert human_bytes(count) == text
