"""Components in isolation: the stream compared with the bare emulator, replay sampling, and replay memory."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from sb_dqn.buffers import ReplayBuffer

FRAME = (1, 84, 84)
ACTIONS = 6


def stream(*, lanes: int, ticks: int, blocks: int) -> dict[str, float]:
    """Acting at random on Pong, through our stream and on a bare AtariVectorEnv of the same settings.

    Both live in this process and take turns in `blocks` blocks of `ticks`, so that a slow second falls on both.

    Returns:
        Env steps per second of each.
    """
    from ale_py.vector_env import AtariVectorEnv
    from gymnasium.vector import AutoresetMode

    from sb_dqn import make_atari_env
    from sb_dqn.envs import open_stream
    from sb_dqn.envs.atari import PROTOCOLS, default_threads

    ours = open_stream(make_atari_env("PongNoFrameskip-v4", lanes, protocol="classic"))
    bare = AtariVectorEnv(
        "pong",
        lanes,
        num_threads=default_threads(lanes),
        autoreset_mode=AutoresetMode.NEXT_STEP,
        stack_num=1,
        reward_clipping=False,
        max_num_frames_per_episode=108_000,
        **PROTOCOLS["classic"],
    )
    rng = np.random.default_rng(0)
    ours.begin(seed=0)
    bare.reset(seed=0)
    seconds = {"ours": 0.0, "bare": 0.0}
    steppers = {"ours": ours.step, "bare": bare.step}
    for block in range(-1, blocks):  # the first is a warm-up
        for name, step in steppers.items():
            start = time.perf_counter()
            for _ in range(ticks):
                step(rng.integers(ACTIONS, size=lanes))
            seconds[name] += (time.perf_counter() - start) * (block >= 0)
    ours.close()
    bare.close()
    return {name: blocks * ticks * lanes / spent for name, spent in seconds.items()}


def sampling(*, rows: int, lanes: int, n_steps: int, batch_sizes: list[int], seconds: float) -> dict[str, float]:
    """Batches per second of n-step transitions of four stacked frames, from a full replay: as `learn` samples, and eagerly.

    Args:
        rows: held, over all lanes.
        seconds: to sample for, per batch size.
    """
    import torch

    from sb_dqn.accelerate import keep_freed_memory
    from sb_dqn.buffers import ReplayBuffer, UniformSampler

    keep_freed_memory()  # as `learn` does
    replay, _ = _filled(rows, lanes, n_steps)
    generator = torch.Generator().manual_seed(0)
    found = {}
    for size in batch_sizes:
        replay = ReplayBuffer(replay.ring, UniformSampler(replay.ring, size), replay.view, replay.schedule)
        noise = torch.rand(replay.sampler.noise_shape, dtype=torch.float64, generator=generator)
        replay.refresh()
        for name, sample in {"": replay.traced_sampling(noise), " eagerly": replay.sample_from}.items():
            count, start, spent = -10, time.perf_counter(), 0.0  # the first ten are a warm-up
            while count <= 0 or spent < seconds:
                if count == 0:
                    start = time.perf_counter()
                replay.refresh()
                sample(noise.uniform_(generator=generator))
                count, spent = count + 1, time.perf_counter() - start
            found[f"batch {size}{name}"] = count / spent
    return found


def memory(*, rows: int, lanes: int, n_steps: int) -> dict[str, float]:
    """Resident bytes that a full replay of Atari frames costs for each env step that it holds."""
    _filled(lanes * 64, lanes, n_steps)  # so that imports and allocators are not counted
    before = resident_bytes()
    kept = _filled(rows, lanes, n_steps)  # the name keeps it alive until it has been measured
    return {"": (resident_bytes() - before) / kept[1]}


def resident_bytes() -> int:
    """Of this process: now on Linux, at most so far elsewhere."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _filled(rows: int, lanes: int, n_steps: int) -> tuple[ReplayBuffer, int]:
    """A replay filled with noise for frames, and how many of its rows are env steps (the others are resets).

    Games end after 500 steps on average, one in four at a time limit; a life is lost every 250.
    """
    from gymnasium import spaces

    from sb_dqn.buffers import Layout, ReplayBuffer, Ring, TransitionView, UniformSampler, UpdateSchedule
    from sb_dqn.buffers.n_step_transitions import Horizon
    from sb_dqn.types import Rows, Slot

    space = spaces.Box(0, 255, FRAME, np.uint8)
    ring = Ring(Layout(rows, lanes, {"obs": space}, num_actions=ACTIONS, frame_stack=4, n_steps=n_steps))
    replay = ReplayBuffer(
        ring, UniformSampler(ring, 32), TransitionView(ring, Horizon(n_steps, 0.99)), UpdateSchedule()
    )
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 256, (61, lanes, *FRAME), np.uint8)
    every, last = np.ones(lanes, np.bool_), np.zeros(lanes, np.bool_)
    action: Any = None
    steps = 0
    for tick in range(rows // lanes):
        resets = last if tick else every
        chance = rng.random(lanes)
        last = (chance < 0.002) & ~resets
        terminal = ((chance < 0.0015) | (chance > 0.996)) & ~resets
        reward = np.where(resets, 0, rng.integers(-1, 2, lanes)).astype(np.float32)
        slot = Slot({"obs": pool[tick % len(pool)]}, reward, reward, terminal, last, every)
        stepped = ~resets
        steps += int(stepped.sum())
        replay.extend(Rows(action, (slot,), stepped, int(stepped.sum())))
        action = rng.integers(ACTIONS, size=lanes)
    return replay, steps
