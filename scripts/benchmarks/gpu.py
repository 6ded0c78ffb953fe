"""Tests and measurements on a CUDA device: `scripts/gpu`, or `scripts/gpu --help`.

Each stage runs in a process of its own with a time limit and adds one JSON line to the output file when it ends, so an
interrupted run keeps what it has. A stage that needs CUDA is reported as "not run" on a machine without it.

`--rehearse` runs the code of all stages on the CPU, with small batches and few steps. Its stages are "rehearsed", never
"passed", and its figures mean nothing.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # so that this runs as a file, from anywhere

WHEELS = (
    "gymnasium", "ale-py", "farama-notifications", "stable-baselines3", "cloudpickle", "safetensors", "pytest",
    "pytest-timeout", "iniconfig", "pluggy", "packaging", "pygments",
)  # fmt: skip
"""Packages that machines with PyTorch often lack."""
NATURE: dict[str, Any] = {
    "batch_size": 32,
    "buffer_size": 20_000,
    "learning_rate": 1e-4,
    "learning_starts": 1_000,
    "target_update_interval": 1_000,
    "train_freq": 4,
}
ATARI = "PongNoFrameskip-v4"


def facts(device: str) -> dict[str, Any]:
    """Returns the device, versions, and the cost of a kernel launch, of a graph launch and of small copies, in µs."""
    import torch

    from scripts.benchmarks.machine import machine, versions

    found: dict[str, Any] = {"machine": machine(), "versions": versions()}
    if device == "cpu":
        return found
    properties = torch.cuda.get_device_properties(0)
    found |= {"device": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
    x, frames = torch.zeros(64, device="cuda"), torch.zeros(28_224, dtype=torch.uint8)
    pinned, on_device = frames.pin_memory(), frames.cuda()
    found["launch_us"] = _microseconds(lambda: x.add_(1))  # loads the kernel too, which a capture must not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            x.add_(1)
    found["graph_of_100_kernels_us"] = _microseconds(graph.replay)
    found["copy_28_kb_pageable_us"] = _microseconds(lambda: on_device.copy_(frames))
    found["copy_28_kb_pinned_us"] = _microseconds(lambda: on_device.copy_(pinned, non_blocking=True))
    found["read_back_us"] = _microseconds(lambda: x[0].item())
    return found


def marked_tests(device: str, mark: str = "gpu") -> dict[str, Any]:
    """Runs the tests with a mark, and returns their last line; fails if one fails."""
    files = sorted(str(path) for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8"))
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", "-m", mark]
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}  # without it products are not deterministic
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0:
        raise RuntimeError("\n".join(lines[-60:]))
    return {"summary": lines[-1]}


def updates(device: str, rehearse: bool = False, names: Sequence[str] = ()) -> dict[str, Any]:
    """Returns µs per update of each algorithm: eager, captured, and compiled with a captured graph.

    Args:
        device: "cuda", or "cpu" for a rehearsal.
        rehearse: run small batches a few times.
        names: of `UPDATES`; all of them by default.
    """
    chosen = names or list(UPDATES)
    figures: dict[str, Any] = {name: {} for name in chosen}
    recorded = "captured" if device == "cuda" else "traced"
    cases = [(name, mode) for name in chosen for mode in ("eager", recorded)]
    # the compiler takes half a minute for each, so it comes last
    for name, mode in cases + [(name, "compiled") for name in COMPILED if name in chosen and not rehearse]:
        try:
            figures[name][mode] = _update_time(name, mode, device, rehearse)
        except Exception as error:  # the other figures are still of use
            figures[name][mode] = _failure(error)
        print(name, mode, figures[name][mode], flush=True)
    return figures


def _update_time(name: str, mode: str, device: str, rehearse: bool) -> float:
    algorithm, policy, env, settings = UPDATES[name]
    model = _model(algorithm, policy, env, 1, device, {**settings, "torch_compile": mode == "compiled"}, rehearse)
    model.mode = mode
    starts = model.arguments.get("learning_starts", 0)
    model.learn(starts + (70 if rehearse else 200))
    if not model.keeps_replay:
        return _rate_of_updates(model, 64 if rehearse else 2_048)
    return _microseconds(model.gradient_step, seconds=0.0 if rehearse else 2.0)


UPDATES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "DQN 64-64": ("DQN", "MlpPolicy", "CartPole-v1", {"learning_starts": 200}),
    "PER n-step 64-64": ("PERDQN", "MlpPolicy", "CartPole-v1", {"learning_starts": 200, "n_steps": 3}),
    "DQN Nature": ("DQN", "CnnPolicy", ATARI, NATURE),
    "PER Nature": ("PERDQN", "CnnPolicy", ATARI, {**NATURE, "n_steps": 3}),
    "C51 Nature": ("CategoricalDQN", "CnnPolicy", ATARI, NATURE),
    "Rainbow Nature": ("Rainbow", "CnnPolicy", ATARI, NATURE),
    "IQN Nature": ("IQN", "CnnPolicy", ATARI, NATURE),
    "BTR": ("BTR", "CnnPolicy", ATARI, {"learning_starts": 1_000, "buffer_size": 20_000}),
    "R2D2": ("R2D2", "CnnLstmPolicy", ATARI, {"learning_starts": 1_000, "buffer_size": 20_000, "batch_B": 32}),
    "SAC 256-256": ("SAC", "MlpPolicy", "Pendulum-v1", {}),
    "PPO Nature": ("PPO", "CnnPolicy", ATARI, {"n_steps": 128, "batch_size": 128}),
}


COMPILED = ("DQN Nature", "BTR", "PPO Nature", "SAC 256-256")
"""Updates that are compiled too."""


def training(device: str, rehearse: bool = False, names: Sequence[str] = ()) -> dict[str, Any]:
    """Returns env steps per second of `learn` in the steady state, and those of Stable-Baselines3 on the same machine.

    Args:
        device: "cuda", or "cpu" for a rehearsal.
        rehearse: run small batches for a few steps in at most two lanes.
        names: of `TRAINING`; all of them by default.
    """
    figures: dict[str, Any] = {}
    for name in names or TRAINING:
        library, algorithm, policy, env, lanes, settings, steps = TRAINING[name]
        if rehearse:
            lanes, steps = min(lanes, 2), 120
        try:
            one = "cpu" if name.endswith("on the CPU") else device
            build = _model if library == "sb_dqn" else _sb3_model
            model = build(algorithm, policy, env, lanes, one, settings, rehearse)
            model.learn(steps)
            before, start = model.num_timesteps, time.perf_counter()
            model.learn(steps, reset_num_timesteps=False)
            figures[name] = round((model.num_timesteps - before) / (time.perf_counter() - start), 1)
        except Exception as error:
            figures[name] = _failure(error)
        print(name, figures[name], flush=True)
    return figures


SB3_NATURE = {**NATURE, "train_freq": 1, "gradient_steps": 2}
"""Stable-Baselines3 counts vector steps: two updates for each step of eight environments."""
PPO_ATARI: dict[str, Any] = {"n_steps": 128, "batch_size": 256, "n_epochs": 4}
TRAINING: dict[str, tuple[str, str, str, str, int, dict[str, Any], int]] = {
    "DQN CartPole on the CPU": ("sb_dqn", "DQN", "MlpPolicy", "CartPole-v1", 1, {}, 5_000),
    "DQN CartPole": ("sb_dqn", "DQN", "MlpPolicy", "CartPole-v1", 1, {}, 5_000),
    "DQN Nature, 1 lane": ("sb_dqn", "DQN", "CnnPolicy", ATARI, 1, NATURE, 4_000),
    "DQN Nature, 8 lanes": ("sb_dqn", "DQN", "CnnPolicy", ATARI, 8, NATURE, 16_000),
    "DQN Nature, 8 lanes, bf16": ("sb_dqn", "DQN", "CnnPolicy", ATARI, 8, {**NATURE, "precision": "bf16"}, 16_000),
    "DQN Nature, 32 lanes": ("sb_dqn", "DQN", "CnnPolicy", ATARI, 32, NATURE, 16_000),
    "DQN Nature, 8 lanes, Stable-Baselines3": ("sb3", "DQN", "CnnPolicy", ATARI, 8, SB3_NATURE, 6_000),
    "BTR Nature, 64 lanes": (
        "sb_dqn",
        "BTR",
        "CnnPolicy",
        ATARI,
        64,
        {"learning_starts": 2_000, "buffer_size": 50_000},
        12_800,
    ),
    "PPO Nature, 8 lanes": ("sb_dqn", "PPO", "CnnPolicy", ATARI, 8, PPO_ATARI, 20_480),
    "PQN Nature, 128 lanes": ("sb_dqn", "PQN", "CnnPolicy", ATARI, 128, {}, 40_960),
}


def memory(device: str, rehearse: bool = False) -> dict[str, Any]:
    """Returns the device memory in MiB after 200 and after 2,000 updates."""
    import torch

    settings = {"learning_starts": 200, "train_freq": 1}
    model = _model("PERDQN", "MlpPolicy", "CartPole-v1", 1, device, settings, rehearse)
    model.learn(400)
    first = torch.cuda.memory_allocated() / 2**20
    model.learn(100 if rehearse else 1_800, reset_num_timesteps=False)
    return {"after_200": round(first, 2), "after_2000": round(torch.cuda.memory_allocated() / 2**20, 2)}


STAGES: dict[str, tuple[Callable[..., dict[str, Any]], bool, float]] = {
    "facts": (facts, False, 60.0),
    "tests": (marked_tests, True, 240.0),
    "updates": (updates, True, 300.0),
    "training": (training, True, 400.0),
    "memory": (memory, True, 60.0),
}
"""Function, whether it needs CUDA, and seconds after which it is ended."""
REHEARSED: dict[str, Any] = {
    "learning_starts": 100, "buffer_size": 1_000, "batch_size": 4, "n_steps": 16, "n_epochs": 1, "train_freq": 16,
    "batch_T": 4, "warmup_T": 4, "store_rnn_state_interval": 4, "batch_B": 2,
}  # fmt: skip
"""Settings of a rehearsal, where a class has them."""


def _reduced(algorithm: type[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings with those of a rehearsal; a setting of more than that is not raised."""
    smaller = {name: REHEARSED[name] for name in inspect.signature(algorithm).parameters.keys() & REHEARSED.keys()}
    if algorithm.__name__ not in ("PPO", "PQN"):
        smaller.pop("n_steps", None)  # of returns, not of a rollout
    return {**settings, **smaller}


def _model(
    algorithm: str, policy: str, env: str, lanes: int, device: str, settings: dict[str, Any], rehearse: bool = False
) -> Any:
    import sb_dqn
    from sb_dqn import make_atari_env, make_vec_env

    made: Any = make_atari_env(env, lanes, protocol="classic") if "NoFrameskip" in env else make_vec_env(env, lanes)
    cls = getattr(sb_dqn, algorithm)
    return cls(policy, made, seed=0, device=device, **(_reduced(cls, settings) if rehearse else settings))


def _sb3_model(
    algorithm: str, policy: str, env: str, lanes: int, device: str, settings: dict[str, Any], rehearse: bool = False
) -> Any:
    import ale_py  # noqa: F401 - registers its ids
    import stable_baselines3
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    cls = getattr(stable_baselines3, algorithm)
    stacked = VecFrameStack(make_atari_env(env, lanes, vec_env_cls=DummyVecEnv if rehearse else SubprocVecEnv), 4)
    return cls(policy, stacked, seed=0, device=device, **(_reduced(cls, settings) if rehearse else settings))


def _failure(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _failures(figures: Any) -> list[str]:
    """Returns what stands in place of figures that could not be measured."""
    if isinstance(figures, dict):
        return [failure for value in figures.values() for failure in _failures(value)]
    return [figures] if isinstance(figures, str) else []


def _microseconds(call: Callable[[], Any], seconds: float = 0.5) -> float:
    """Returns the mean time of a call, with all its kernels finished; of a single call for 0 seconds."""
    import torch

    wait: Any = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    times = 10 if seconds else 1
    for _ in range(times):
        call()
    wait()
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < seconds:
        for _ in range(times):
            call()
        count += times
    wait()
    return round((time.perf_counter() - start) / count * 1e6, 2)


def _rate_of_updates(model: Any, steps: int) -> float:
    """Returns µs per update of an on-policy model, acting included."""
    before, start = model._n_updates, time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return round((time.perf_counter() - start) / float(model._n_updates - before) * 1e6, 2)


def run_stage(name: str, device: str, timeout: float, rehearse: bool = False) -> dict[str, Any]:
    """Runs one stage in a process of its own and returns its line."""
    _, needs_cuda, limit = STAGES[name]
    if needs_cuda and device == "cpu" and not rehearse:
        return {"stage": name, "status": "not run", "why": "no CUDA device"}
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", name, "--device", device]
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, "--rehearse"] if rehearse else command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=min(limit, timeout),
        )
    except subprocess.TimeoutExpired as error:
        output: Any = error.stdout or b""  # bytes, although the process writes text
        so_far = output.decode() if isinstance(output, bytes) else output
        return {
            "stage": name,
            "status": "failed",
            "why": f"not finished after {min(limit, timeout):.0f} s",
            "output": so_far[-4000:],
        }
    line: dict[str, Any] = {"stage": name, "status": "rehearsed" if rehearse else "passed"}
    line["seconds"] = round(time.perf_counter() - start, 1)
    if done.returncode != 0:
        return {**line, "status": "failed", "why": done.stdout[-4000:]}
    figures = json.loads(done.stdout.splitlines()[-1])
    if name in ("updates", "training") and _failures(figures):
        line |= {"status": "failed", "why": "some figures could not be measured"}
    return {**line, "figures": figures}


def work(name: str, device: str, rehearse: bool) -> dict[str, Any]:
    """Returns the figures of a stage; the other end of `run_stage`."""
    stage: Callable[..., dict[str, Any]] = STAGES[name][0]
    if not rehearse or name == "facts":
        return stage(device)
    # on the CPU no test has the mark `gpu` and runs, so the others of its files do
    return marked_tests(device, "not gpu") if name == "tests" else stage(device, rehearse=True)


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
    if options.worker is not None:
        print(f"\n{json.dumps(work(options.worker, options.device, options.rehearse))}")
        return 0
    if options.command == "pack":
        pack(options.python, options.wheels)
        return 0
    import torch

    device = "cpu" if options.rehearse else options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    end = time.monotonic() + 60 * options.minutes
    failed = False
    for name in options.stages:
        line = run_stage(name, device, max(end - time.monotonic(), 1.0), options.rehearse)
        failed |= line["status"] == "failed"
        print(json.dumps(line), flush=True)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return int(failed)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", nargs="?", default="run", choices=["run", "pack"])
    parser.add_argument("--stages", nargs="+", default=list(STAGES), choices=list(STAGES))
    parser.add_argument("--out", type=Path, default=ROOT / "gpu.jsonl", help="JSON lines are added to it")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all stages together")
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: CUDA if there is one")
    parser.add_argument("--rehearse", action="store_true", help="run the code of all stages on the CPU, in small")
    parser.add_argument("--python", default="3.12", help="of the machine that `pack` downloads for")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".wheels")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
