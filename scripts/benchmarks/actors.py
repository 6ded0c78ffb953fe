"""Actors compared with a learner that does everything in turn: env steps per second, replay ratio, and replaced processes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from scripts.benchmarks.measurements import Benchmark, Measurement
from scripts.benchmarks.table import Comparison

PROCESSES, PAUSE = 32, 0.005
ATARI = "PongNoFrameskip-v4"
TURN = 400
"""Env steps of a turn of one of several models."""


class Sleeper(gymnasium.Env[Any, Any]):
    """An environment whose steps take `pause` seconds, without work for the processor."""

    observation_space = gymnasium.spaces.Box(-1, 1, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, pause: float = PAUSE, spread: float = 0.0) -> None:
        self.pause, self.spread = pause, spread
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        time.sleep(self.pause * (1 + self.spread * self.np_random.uniform(-1, 1)))
        return self.np_random.uniform(-1, 1, 8).astype(np.float32), 1.0, False, self.t >= 200, {}


class SleepingLanes(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Lanes with images that step together in `pause` seconds, without work for the processor."""

    def __init__(self, num_envs: int, pause: float) -> None:
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self.num_envs, self.pause = num_envs, pause
        self.single_observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.single_action_space = gymnasium.spaces.Discrete(6)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._obs = np.random.default_rng(0).integers(0, 256, (num_envs, 4, 84, 84), np.uint8)
        self._never = np.zeros(num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._obs, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        time.sleep(self.pause)
        return self._obs, np.ones(self.num_envs), self._never, self._never, {}


def alternating(*, actors: str | None, lanes: int, steps: int) -> dict[str, float]:
    """Returns env steps/s of the Nature network where a step of all lanes takes as long as the selection of their actions."""
    import torch

    from sb_dqn import DQN
    from sb_dqn.actors import OverlappedActors, as_actors

    torch.set_num_threads(1)
    settings: dict[str, Any] = {
        "buffer_size": 4_000, "learning_starts": 32, "train_freq": 256, "seed": 0, "device": "cpu", "exploration_fraction": 0.0,
    }  # fmt: skip
    probe = DQN("CnnPolicy", SleepingLanes(lanes, 0.0), **settings)
    pause = lanes / _rate(probe, 40 * lanes, warm_up=10 * lanes)
    groups = as_actors(actors)
    of_group = groups.lanes if isinstance(groups, OverlappedActors) else lanes
    factory = partial(SleepingLanes, of_group, pause)
    env = factory if of_group < lanes else factory()
    return {"": _rate(DQN("CnnPolicy", env, actors=actors, **settings), steps, warm_up=10 * lanes)}


def overlap(*, seconds: float) -> dict[str, float]:
    """Returns env steps/s, inline and overlapped, where the environment's steps take as long as the updates between them."""
    import torch

    from sb_dqn import DQN

    torch.set_num_threads(1)
    settings: dict[str, Any] = {
        "batch_size": 256, "buffer_size": 10_000, "learning_starts": 300, "train_freq": 1, "seed": 0, "device": "cpu",
        "policy_kwargs": {"net_arch": [256, 256]},
    }  # fmt: skip
    probe = DQN("MlpPolicy", partial(Sleeper, 0.0), **settings).learn(600)
    start = time.perf_counter()
    probe.learn(600, reset_num_timesteps=False)
    pause = (time.perf_counter() - start) / 600
    models = {
        name: DQN("MlpPolicy", partial(Sleeper, pause), actors=actors, **settings).learn(600)
        for name, actors in (("inline", None), ("overlapped", "overlapped"))
    }
    return _in_turns(models, round(seconds / pause / 2))


def pong(*, lanes: int, warm_up: int, steps: int) -> dict[str, float]:
    """Returns env steps/s of DQN with the Nature network on Pong, inline and overlapped."""
    from sb_dqn import DQN, make_atari_env

    models = {
        name: DQN(
            "CnnPolicy", make_atari_env(ATARI, lanes, protocol="classic"), actors=actors,
            buffer_size=10_000, learning_starts=warm_up // 2, seed=0, device="cpu",
        ).learn(warm_up)
        for name, actors in (("inline", None), ("overlapped", "overlapped"))
    }  # fmt: skip
    return _in_turns(models, steps)


def processes(*, count: int, steps: int, ray: bool = False) -> dict[str, float]:
    """Returns env steps/s of DQN that makes an update for every 16 env steps, per second of one environment alone."""
    from sb_dqn import DQN
    from sb_dqn.actors import ProcessActors, RayActors

    actors: Any = RayActors(count, num_cpus=0.1) if ray else ProcessActors(count)
    alone = Sleeper()
    alone.reset(seed=0)
    start = time.perf_counter()
    for _ in range(200):
        alone.step(0)
    one = 200 / (time.perf_counter() - start)
    model = DQN("MlpPolicy", Sleeper, actors=actors, train_freq=16, learning_starts=1_000, seed=0, device="cpu")
    return {"": _rate(model, steps, warm_up=count * 400) / one}


def ratio(*, order: str, runs: int, steps: int) -> dict[str, float]:
    """Returns the largest deviation of the number of updates from `gradient_steps * steps / train_freq`, over all ticks of runs
    with random timings; below 1 it is exact."""
    from sb_dqn import DQN
    from sb_dqn.actors import ProcessActors

    worst = 0.0
    rng = np.random.default_rng(0)
    for run in range(runs):
        envs = [partial(Sleeper, float(rng.uniform(0.0, 0.003)), 0.9) for _ in range(3)]
        model: Any = DQN(
            "MlpPolicy", envs, actors=ProcessActors(3, order=order, chunk=int(rng.integers(1, 9))),  # type: ignore[arg-type]
            train_freq=5, gradient_steps=2, learning_starts=20, batch_size=8, seed=run, device="cpu",
            policy_kwargs={"net_arch": [8]},
        )  # fmt: skip
        seen: list[tuple[int, int]] = []

        def note(local: Any, _: Any, seen: Any = seen) -> bool:
            seen.append((local["self"].num_timesteps, local["self"]._n_updates))
            return True

        model.learn(steps, note)
        model.close()
        start = next(step for step, updates in seen if updates)
        worst = max(worst, *(abs(made - 2 * (step // 5 - start // 5 + 1)) for step, made in seen if step >= start))
    return {"": float(worst)}


def replaced(*, seconds: float, every: float) -> dict[str, float]:
    """Returns the seconds beyond the planned ones of a run in which a random process is killed every `every` seconds, and how
    many were replaced."""
    import os
    import signal
    import threading
    import warnings

    from sb_dqn import DQN
    from sb_dqn.actors import ProcessActors

    warnings.simplefilter("ignore")
    model: Any = DQN(
        "MlpPolicy", Sleeper, actors=ProcessActors(4, order="arrival"), learning_starts=100, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(400)
    end = time.perf_counter() + seconds
    over = threading.Event()

    def kill() -> None:
        rng = np.random.default_rng(0)
        while not over.wait(every):
            started = list(model.collector.workers._processes.values())
            if started:
                os.kill(started[rng.integers(len(started))].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        model.learn(10**9, lambda *_: time.perf_counter() < end, reset_num_timesteps=False)
    finally:
        over.set()
        killer.join()
    return {"late": time.perf_counter() - end, "replaced": model.collector.restarts, "steps": model.num_timesteps}


def _rate(model: Any, steps: int, warm_up: int) -> float:
    """Returns env steps/s of `steps` env steps after `warm_up`, within one `learn`: each `learn` resets all environments, and actors
    that were ahead begin again."""
    seen: list[tuple[float, int]] = []

    def note(*_: Any) -> bool:
        if model.num_timesteps >= warm_up:
            seen.append((time.perf_counter(), model.num_timesteps))
        return True

    model.learn(warm_up + steps, note)
    (start, first), (end, last) = seen[0], seen[-1]
    return (last - first) / (end - start)


def _in_turns(models: Mapping[str, Any], steps: int) -> dict[str, float]:
    """Returns the env steps/s of each model over `steps` env steps.

    All train in this process, in turns of `TURN` env steps: two processes that do the same differ by up to a fifth on a
    shared machine, more than what is measured.
    """
    seconds = dict.fromkeys(models, 0.0)
    turns = max(steps // TURN, 1)
    for turn in range(turns):
        for name in list(models)[:: 1 if turn % 2 == 0 else -1]:
            start = time.perf_counter()
            models[name].learn(TURN, reset_num_timesteps=False)
            seconds[name] += time.perf_counter() - start
    return {name: turns * TURN / elapsed for name, elapsed in seconds.items()}


def _measure(name: str, function: str, **arguments: Any) -> Measurement:
    return Measurement(name, f"actors.{function}", arguments)


def actor_benchmarks(seconds: float, pong_steps: tuple[int, int], steps: int, runs: int) -> tuple[Benchmark, ...]:
    """Returns `overlap`, `alternating`, `overlap-pong`, `actors`, `ray`, `ratio` and `replaced`.

    Args:
        seconds: of a measurement of `overlap`, and of `replaced` times 12.
        pong_steps: env steps of warm-up, and measured.
        steps: env steps of `actors`.
        runs: of `ratio`.
    """
    warm_up, measured = pong_steps
    return (
        Benchmark(
            "overlap",
            "env steps/s",
            (_measure("DQN", "overlap", seconds=seconds),),
            (Comparison("times inline", ("DQN overlapped",), ("DQN inline",), at_least=1.8),),
        ),
        Benchmark(
            "alternating",
            "env steps/s",
            tuple(
                _measure(name, "alternating", actors=actors, lanes=16, steps=steps // 10)
                for name, actors in (("inline", None), ("overlapped", "overlapped"), ("two groups", "overlapped:2x8"))
            ),
            (
                Comparison("two groups, times inline", ("two groups",), ("inline",)),
                Comparison("two groups, times overlapped", ("two groups",), ("overlapped",)),
            ),
        ),
        Benchmark(
            "overlap-pong",
            "env steps/s",
            (_measure("Pong", "pong", lanes=8, warm_up=warm_up, steps=measured),),
            (Comparison("times inline", ("Pong overlapped",), ("Pong inline",), at_least=0.97),),
        ),
        Benchmark(
            "actors",
            "times one environment",
            tuple(_measure(f"{count} processes", "processes", count=count, steps=steps) for count in (16, PROCESSES)),
            tuple(
                Comparison(f"{count} processes", (f"{count} processes",), how="value", at_least=0.9 * count)
                for count in (16, PROCESSES)
            ),
        ),
        Benchmark(
            "ray",
            "times one environment",
            (Measurement("8 Ray actors", "actors.processes", {"count": 8, "steps": steps // 4, "ray": True}, "ray"),),
            (Comparison("8 Ray actors", ("8 Ray actors",), how="value", at_least=0.85 * 8),),
        ),
        Benchmark(
            "ratio",
            "updates off",
            tuple(_measure(order, "ratio", order=order, runs=runs, steps=300) for order in ("lane", "arrival")),
            tuple(Comparison(order, (order,), how="value", at_most=0.0) for order in ("lane", "arrival")),
            less_is_better=True,
        ),
        Benchmark("replaced", "", (_measure("one every second", "replaced", seconds=12 * seconds, every=1.0),)),
    )
