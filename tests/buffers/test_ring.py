"""Ring: sizes, rejected arguments, memory, files, state."""

from __future__ import annotations

import gc
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn.buffers.n_step_transitions import Horizon, TransitionView
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout, action_dtype, stored_dtype
from sb_dqn.buffers.ring_storage import MAGIC
from sb_dqn.devices import HostStage
from sb_dqn.errors import CheckpointError, ConfigurationError, MemoryBudgetError
from sb_dqn.types import Slot
from tests.buffers.test_n_step_transitions import GAMMA, check_everything
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Game, play
from tests.invariants import check_valid
from tests.marks import SLOW

ATARI = {"obs": spaces.Box(0, 255, (1, 84, 84), np.uint8)}
VECTOR = {"obs": spaces.Box(-1, 1, (4,), np.float32)}
NOISE = torch.rand(4, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def toy(rows: int, lanes: int = 3, host_visible: bool | None = None, **settings: Any) -> Ring:
    settings = {"frame_stack": 4, "n_steps": 3} | settings
    return Ring(Layout(rows * lanes, lanes, SPACES, num_actions=NUM_ACTIONS, **settings), host_visible)


def played(ring: Ring, ticks: int, kind: str = "SAME_STEP", seed: int = 0) -> list[Game]:
    rng = np.random.default_rng(seed)
    names = ["go"] * 3 + list(EVENTS)
    games = [Game(b, [names[i] for i in rng.integers(0, len(names), 40)]) for b in range(ring.num_lanes)]
    for rows in islice(play(games, kind, rng), ticks):
        feed(ring, rows)
    return games


def feed(ring: Ring, rows: Any) -> None:
    ring.cut() if rows.action is None else ring.depart(rows.action)
    for slot in rows.slots:
        ring.arrive(slot)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_sizes() -> None:
    ring = Ring(Layout(100_007, 8, ATARI, num_actions=6, frame_stack=4, n_steps=3))
    assert (ring.rows, ring.capacity, len(ring)) == (12_500, 100_000, 0)
    assert ring.layout.bytes_per_row == 84 * 84 + 1 + 4 + 1 + 1
    assert ring.layout.nbytes == 100_000 * ring.layout.bytes_per_row + 84 * 84
    assert ring.layout.describe() == "replay of 100,000 rows (8 x 12,500): 673.6 MiB in memory, 7,063 bytes a row"


@pytest.mark.parametrize(
    ("rows", "shape", "gigabytes"),
    [  # decoys: with the stacks of 4 frames 33.28 and 28.224; with those of the next row, too, 56.448; 100,000 as floats 11.29
        (1_000_000, (104, 80), 8.32),
        (1_000_000, (84, 84), 7.056),
        (100_000, (84, 84), 0.7056),
    ],
)
def test_memory_of_frames_by_hand(rows: int, shape: tuple[int, int], gigabytes: float) -> None:
    frame = spaces.Box(0, 255, (1, *shape), np.uint8)
    ring = Ring(Layout(100, 1, {"obs": frame}, num_actions=6, frame_stack=4, n_steps=3))
    of_frames = ring.layout.bytes_per_row - (1 + 4 + 1 + 1)  # action, reward, last, terminal
    assert rows * of_frames / 1e9 == pytest.approx(gigabytes, rel=1e-9)


@SLOW
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_atari_steps_cost_no_more_than_one_frame_of_resident_memory() -> None:
    gc.collect()
    before, steps, lanes = resident_bytes(), 8_000, 8
    ring = Ring(Layout(100_000, lanes, ATARI, num_actions=6, frame_stack=4, n_steps=3))
    assert resident_bytes() - before < 2**24  # no page is allocated before it is written
    last, reward = np.zeros(lanes, bool), np.ones(lanes, np.float32)
    frames, action = np.full((lanes, 1, 84, 84), 7, np.uint8), np.ones(lanes, np.int64)
    for tick in range(steps // lanes):
        if tick:
            ring.depart(action)
        ring.arrive(Slot({"obs": frames}, reward, reward, last, last | (tick % 50 == 49), ~last))
    assert len(ring) == steps
    assert (resident_bytes() - before) / steps < 7_300


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"capacity": 20},
            r"buffer_size must be at least 21, got 20: that is 6 rows .* n_steps \+ frame_stack = 7",
        ),
        (
            {"spaces": VECTOR},
            r"frame_stack must be 1 for observations without three axes .*, got 4 for shapes .*\(4,\)",
        ),
        ({"device": "cuda", "path": Path("x.bin")}, "buffer_path must be None for a buffer on cuda, got x.bin"),
        ({"path": Path("/no/such/folder/x.bin")}, "buffer_path must be a file in an existing folder"),
    ],
)
def test_wrong_arguments_are_rejected(settings: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "capacity": 30,
        "num_lanes": 3,
        "spaces": SPACES,
        "num_actions": 5,
        "frame_stack": 4,
        "n_steps": 3,
    }
    arguments |= settings
    with pytest.raises(ConfigurationError, match=message):
        Ring(Layout(arguments.pop("capacity"), arguments.pop("num_lanes"), arguments.pop("spaces"), **arguments))


def test_the_smallest_ring_works() -> None:
    assert Ring(Layout(21, 3, SPACES, num_actions=5, frame_stack=4, n_steps=3)).rows == 7


def test_a_ring_larger_than_memory_is_rejected_before_allocation() -> None:
    with pytest.raises(MemoryBudgetError, match=r"1,000,000,000,000 rows of 7,063 bytes needs 6.* TiB.*buffer_path"):
        Ring(Layout(10**12, 1, ATARI, num_actions=6, frame_stack=4))


def test_dtypes_of_columns() -> None:
    assert [action_dtype(n).name for n in (2, 256, 257, 32768, 32769)] == ["uint8", "uint8", "int16", "int16", "int64"]
    assert [stored_dtype(t).name for t in ("uint8", "uint16", "float32", "int64")] == [
        "uint8",
        "int32",
        "float32",
        "int64",
    ]
    wide = Ring(Layout(10, 1, {"obs": spaces.Box(0, 60_000, (2,), np.uint16)}, num_actions=300))
    assert (wide.obs["obs"].dtype, wide.action.dtype) == (torch.int32, torch.int16)


def test_rows_are_written_in_two_halves_and_wrap() -> None:
    ring = Ring(Layout(4, 1, VECTOR, num_actions=9))
    yes, no, one = np.array([True]), np.array([False]), np.ones(1, np.float32)
    for t in range(6):
        ring.arrive(Slot({"obs": np.full((1, 4), t, np.float32)}, one * t, one, no, yes if t == 4 else no, yes))
        assert ring.action[t % 4] == 0  # the action of the overwritten row is cleared
        ring.depart(np.array([t + 1]))
    assert ring.obs["obs"][:, 0].tolist() == [4, 5, 2, 3]
    assert ring.reward.tolist() == [4, 5, 2, 3]
    assert ring.action.tolist() == [0, 6, 3, 4]  # row 4 is `last`: its action is ignored
    assert ring.last.tolist() == [True, False, False, False]
    ring.cut()
    assert ring.last.tolist() == [True, True, False, False]
    assert not ring.terminal.any()


def test_a_cut_before_the_first_row_changes_nothing() -> None:
    ring = toy(10)
    ring.cut()
    assert check_valid(ring) == (True, "valid")
    assert len(ring) == 0


@pytest.mark.parametrize("damage", ["cursor", "last", "action", "zero frame", "common cursor"])
def test_check_valid_finds_damage(damage: str) -> None:
    ring = toy(20)
    played(ring, 15)
    assert check_valid(ring) == (True, "valid")
    match damage:
        case "cursor":
            ring.cursor[0] = -1
        case "last":
            ring.last[(int(ring.cursor[0]) - 1) % ring.rows * ring.num_lanes] ^= True
        case "action":
            ring.action[ring.last] = 1
        case "zero frame":
            ring.obs["camera"][-1] = 1
        case "common cursor":
            ring.cursor[:] = 9
    assert not check_valid(ring)[0]


def test_a_file_holds_the_same_rows_as_memory(tmp_path: Path) -> None:
    path = tmp_path / "replay.bin"
    mapped, plain = toy(20, path=path), toy(20)
    played(mapped, 50)
    games = played(plain, 50)
    for name, column in plain.columns.items():
        assert torch.equal(column, mapped.columns[name]), name
    assert check_everything(mapped, TransitionView(mapped, Horizon(mapped.n_steps, GAMMA)), games, NOISE)
    assert "in file" in mapped.layout.describe()
    assert path.read_bytes().startswith(MAGIC)


def test_another_file_is_not_overwritten_and_an_old_buffer_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    with pytest.raises(ConfigurationError, match="buffer_path must be a new file or an old replay buffer"):
        toy(20, path=path)
    assert path.read_text() == "years of work"
    with pytest.raises(ConfigurationError, match="buffer_path must be a file in an existing folder"):
        toy(20, path=tmp_path)
    first = toy(20, path=tmp_path / "replay.bin")
    played(first, 10)
    held = first.reward.clone()
    second = toy(20, path=tmp_path / "replay.bin")
    assert torch.equal(first.reward, held)  # a process that has the old file open keeps it
    assert not second.reward.any()


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
def test_staged_rows_are_those_that_numpy_writes(kind: str) -> None:
    staged, plain = toy(12, host_visible=False), toy(12)
    played(staged, 30, kind)
    played(plain, 30, kind)
    for name, column in plain.columns.items():
        assert torch.equal(column, staged.columns[name]), name


def test_a_tick_is_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    send = HostStage.send

    def count(stage: HostStage) -> torch.Tensor:
        sent.append(stage)
        return send(stage)

    monkeypatch.setattr(HostStage, "send", count)
    played(toy(12, host_visible=False), 30, "NEXT_STEP")
    assert len(sent) == 30


def test_departing_twice_keeps_the_latest_action() -> None:
    ring = toy(12, host_visible=False)
    played(ring, 5, "NEXT_STEP")
    for action in (1, 2, 3):
        ring.depart(np.full(3, action))
    ring._open_last[:] = False
    ring.flush()
    assert ring.action.view(12, 3)[int(ring.cursor[0] - 1) % 12].tolist() == [3, 3, 3]


def test_columns_of_a_device_start_where_compiled_code_reads_them() -> None:
    ring = toy(13, host_visible=False)
    assert {column.data_ptr() % 64 for column in ring.columns.values()} == {0}


def continue_both(games: list[Game], ring: Ring, twin: Ring, ticks: int) -> None:
    """Feeds the same further ticks to both rings, starting with a cut."""
    for rows in islice(play(games, "SAME_STEP", np.random.default_rng(5)), ticks):
        feed(ring, rows)
        feed(twin, rows)


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("ticks", [0, 5, 17, 60])
def test_state_round_trip_is_exact(ticks: int) -> None:
    ring, twin = toy(20), toy(20)
    games = played(ring, ticks)
    played(twin, 33, seed=9)  # replaced by the loaded rows
    twin.load_state_dict({name: value.clone() for name, value in ring.state_dict().items()})
    assert check_valid(twin) == (True, "valid")
    continue_both(games, ring, twin, 9)
    first, second = ring.state_dict(), twin.state_dict()
    assert set(first) == set(second)
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    assert check_everything(twin, TransitionView(twin, Horizon(twin.n_steps, GAMMA)), games, NOISE)


@pytest.mark.usefixtures("storage")
def test_a_ring_can_load_its_own_live_state() -> None:
    ring, twin = toy(20), toy(20)
    games = played(ring, 30)
    played(twin, 30)
    ring.load_state_dict(ring.state_dict())
    for name, column in ring.columns.items():
        assert torch.equal(column, twin.columns[name]), name
    assert check_everything(ring, TransitionView(ring, Horizon(ring.n_steps, GAMMA)), games, NOISE)


@pytest.mark.usefixtures("storage")
def test_a_smaller_ring_keeps_the_newest_rows() -> None:
    ring, small = toy(30), toy(12)
    games = played(ring, 60)
    small.load_state_dict(ring.state_dict())
    assert check_everything(small, TransitionView(small, Horizon(small.n_steps, GAMMA)), games, NOISE)


@SLOW
@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("ticks", [8, 60])
def test_a_larger_ring_never_reads_rows_that_were_overwritten(ticks: int) -> None:
    ring, large = toy(12), toy(30)
    games = played(ring, ticks)
    held = np.array([len(game.rows()) for game in games])
    ring.refresh_bounds()
    expected = torch.where(torch.from_numpy(held > 12), ring.lo, 0)
    large.load_state_dict(ring.state_dict())
    assert torch.equal(large.lo, expected)
    assert torch.equal(large.hi, ring.hi)
    continue_both(games, large, ring, 4)
    large.refresh_bounds()
    assert torch.equal(large.lo, expected)  # rows stay until the larger ring is full
    again = toy(30)
    again.load_state_dict(large.state_dict())
    continue_both(games, large, again, 70)
    assert check_everything(large, TransitionView(large, Horizon(large.n_steps, GAMMA)), games, NOISE)
    assert check_everything(again, TransitionView(again, Horizon(again.n_steps, GAMMA)), games, NOISE)
    assert (ring.cursor > held).all()


def test_states_of_other_rings_are_rejected() -> None:
    ring = toy(20)
    played(ring, 10)
    state = ring.state_dict()
    with pytest.raises(CheckpointError, match="must have 2 lanes, got 3"):
        toy(20, lanes=2).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"obs/camera.*obs/obs"):
        Ring(Layout(60, 3, VECTOR, num_actions=5)).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"'obs/joints' must be torch.float32 of shape \(3,\), got .* \(7,\)"):
        toy(20).load_state_dict(state | {"obs/joints": torch.zeros(10, 3, 7)})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_ring_on_the_gpu_holds_the_same_rows() -> None:
    device, plain = toy(20, device="cuda"), toy(20)
    for kind in ("NEXT_STEP", "SAME_STEP"):
        played(device, 50, kind)
        games = played(plain, 50, kind)
        for name, column in plain.columns.items():
            assert torch.equal(column, device.columns[name].cpu()), name
    del games
    device.refresh_bounds()
    lane, row = device.lo.new_zeros(5), device.lo[:1] + torch.arange(5, device="cuda")
    plain.refresh_bounds()
    want = TransitionView(plain, Horizon(plain.n_steps, GAMMA)).gather(lane.cpu(), row.cpu(), torch.ones(5))
    got = TransitionView(device, Horizon(device.n_steps, GAMMA)).gather(lane, row, torch.ones(5, device="cuda"))
    assert torch.equal(got.obs["camera"].cpu(), want.obs["camera"])
    torch.testing.assert_close(got.return_.cpu(), want.return_)
