"""Tests and measurements on a CUDA device: `scripts/gpu`, or `scripts/gpu --help`.

Each stage runs in a process of its own with a time limit and adds one JSON line to the output file when it ends, so an
interrupted run keeps what it has. A stage that needs CUDA is reported as "not run" on a machine without it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # so that this runs as a file, from anywhere

WHEELS = ("gymnasium", "ale-py", "farama-notifications", "stable-baselines3", "cloudpickle", "safetensors")
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
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            x.add_(1)
    found["launch_us"] = _microseconds(lambda: x.add_(1))
    found["graph_of_100_kernels_us"] = _microseconds(graph.replay)
    found["copy_28_kb_pageable_us"] = _microseconds(lambda: on_device.copy_(frames))
    found["copy_28_kb_pinned_us"] = _microseconds(lambda: on_device.copy_(pinned, non_blocking=True))
    found["read_back_us"] = _microseconds(lambda: x[0].item())
    return found


def tests(device: str) -> dict[str, Any]:
    """Runs the tests marked `gpu` and returns their last line; fails if one fails."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=--import-mode=importlib",
        "-m",
        "gpu",
    ]
    done = subprocess.run([*command, "tests"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0:
        raise RuntimeError("\n".join(lines[-60:]))
    return {"summary": lines[-1]}


def updates(device: str) -> dict[str, Any]:
    """Returns µs per update of each algorithm: eager, captured, and compiled with a captured graph."""
    figures: dict[str, Any] = {}
    for name, (algorithm, policy, env, settings) in UPDATES.items():
        figures[name] = {}
        for mode in ("eager", "captured", "compiled") if device == "cuda" else ("eager", "traced"):
            try:
                model = _model(algorithm, policy, env, 1, device, {**settings, "torch_compile": mode == "compiled"})
                model.mode = mode
                model.learn(model.arguments.get("learning_starts", 0) + 200)
                if hasattr(model, "replay_buffer"):
                    figures[name][mode] = _microseconds(model.gradient_step, seconds=2.0)
                else:
                    figures[name][mode] = _rate_of_updates(model)
            except Exception as error:  # the other figures are still of use
                figures[name][mode] = f"{type(error).__name__}: {str(error)[:300]}"
        print(name, figures[name], flush=True)
    return figures


UPDATES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "DQN 64-64": ("DQN", "MlpPolicy", "CartPole-v1", {"learning_starts": 200}),
    "PER n-step 64-64": ("PERDQN", "MlpPolicy", "CartPole-v1", {"learning_starts": 200, "n_steps": 3}),
    "DQN Nature": ("DQN", "CnnPolicy", ATARI, NATURE),
    "PER Nature": ("PERDQN", "CnnPolicy", ATARI, {**NATURE, "n_steps": 3}),
    "C51 Nature": ("CategoricalDQN", "CnnPolicy", ATARI, NATURE),
    "Rainbow Nature": ("Rainbow", "CnnPolicy", ATARI, NATURE),
    "IQN Nature": ("IQN", "CnnPolicy", ATARI, NATURE),
    "BTR": ("BTR", "CnnPolicy", ATARI, {"learning_starts": 1_000, "buffer_size": 20_000}),
    "R2D2": ("R2D2", "CnnLstmPolicy", ATARI, {"learning_starts": 1_000, "buffer_size": 20_000, "batch_size": 32}),
    "SAC 256-256": ("SAC", "MlpPolicy", "Pendulum-v1", {}),
    "PPO Nature": ("PPO", "CnnPolicy", ATARI, {"n_steps": 128, "batch_size": 128}),
}


def training(device: str) -> dict[str, Any]:
    """Returns env steps per second of `learn` in the steady state, and those of Stable-Baselines3 on the same machine."""
    figures: dict[str, Any] = {}
    for name, (library, algorithm, policy, env, lanes, settings, steps) in TRAINING.items():
        if device == "cpu" and "Nature" in name:
            continue
        try:
            one = "cpu" if name.endswith("on the CPU") else device
            build = _model if library == "sb_dqn" else _sb3_model
            model = build(algorithm, policy, env, lanes, one, settings)
            model.learn(steps)
            before, start = model.num_timesteps, time.perf_counter()
            model.learn(steps, reset_num_timesteps=False)
            figures[name] = round((model.num_timesteps - before) / (time.perf_counter() - start), 1)
        except Exception as error:
            figures[name] = f"{type(error).__name__}: {str(error)[:300]}"
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


def memory(device: str) -> dict[str, Any]:
    """Returns the device memory in MiB after 200 and after 2,000 updates."""
    import torch

    model = _model("PERDQN", "MlpPolicy", "CartPole-v1", 1, device, {"learning_starts": 200, "train_freq": 1})
    model.learn(400)
    first = torch.cuda.memory_allocated() / 2**20
    model.learn(2_000, reset_num_timesteps=False)
    return {"after_200": round(first, 2), "after_2000": round(torch.cuda.memory_allocated() / 2**20, 2)}


STAGES: dict[str, tuple[Callable[[str], dict[str, Any]], bool, float]] = {
    "facts": (facts, False, 60.0),
    "tests": (tests, True, 240.0),
    "updates": (updates, True, 300.0),
    "training": (training, True, 400.0),
    "memory": (memory, True, 60.0),
}
"""Function, whether it needs CUDA, and seconds after which it is ended."""


def _model(algorithm: str, policy: str, env: str, lanes: int, device: str, settings: dict[str, Any]) -> Any:
    import sb_dqn
    from sb_dqn import make_atari_env, make_vec_env

    made: Any = make_atari_env(env, lanes, protocol="classic") if "NoFrameskip" in env else make_vec_env(env, lanes)
    return getattr(sb_dqn, algorithm)(policy, made, seed=0, device=device, **settings)


def _sb3_model(algorithm: str, policy: str, env: str, lanes: int, device: str, settings: dict[str, Any]) -> Any:
    import ale_py  # noqa: F401 - registers its ids
    import stable_baselines3
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

    stacked = VecFrameStack(make_atari_env(env, lanes, vec_env_cls=SubprocVecEnv), 4)
    return getattr(stable_baselines3, algorithm)(policy, stacked, seed=0, device=device, **settings)


def _microseconds(call: Callable[[], Any], seconds: float = 0.5) -> float:
    """Returns the mean time of a call, with all its kernels finished."""
    import torch

    wait: Any = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    for _ in range(10):
        call()
    wait()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(10):
            call()
        count += 10
    wait()
    return round((time.perf_counter() - start) / count * 1e6, 2)


def _rate_of_updates(model: Any) -> float:
    """Returns µs per update of an on-policy model, acting included."""
    before, start = model._n_updates, time.perf_counter()
    model.learn(2_048, reset_num_timesteps=False)
    return round((time.perf_counter() - start) / float(model._n_updates - before) * 1e6, 2)


def run_stage(name: str, device: str, timeout: float) -> dict[str, Any]:
    """Runs one stage in a process of its own and returns its line."""
    _, needs_cuda, limit = STAGES[name]
    if needs_cuda and device == "cpu":
        return {"stage": name, "status": "not run", "why": "no CUDA device"}
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", name, "--device", device]
    start = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=min(limit, timeout))
    except subprocess.TimeoutExpired as error:
        output: Any = error.stdout or b""  # bytes, although the process writes text
        so_far = output.decode() if isinstance(output, bytes) else output
        return {
            "stage": name,
            "status": "failed",
            "why": f"not finished after {min(limit, timeout):.0f} s",
            "output": so_far[-4000:],
        }
    seconds = round(time.perf_counter() - start, 1)
    if done.returncode != 0:
        return {"stage": name, "status": "failed", "seconds": seconds, "why": done.stdout[-4000:]}
    return {"stage": name, "status": "passed", "seconds": seconds, "figures": json.loads(done.stdout.splitlines()[-1])}


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
        print(f"\n{json.dumps(STAGES[options.worker][0](options.device))}")
        return 0
    if options.command == "pack":
        pack(options.python, options.wheels)
        return 0
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    end = time.monotonic() + 60 * options.minutes
    failed = False
    for name in options.stages:
        line = run_stage(name, device, max(end - time.monotonic(), 1.0))
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
    parser.add_argument("--python", default="3.12", help="of the machine that `pack` downloads for")
    parser.add_argument("--wheels", type=Path, default=ROOT / ".wheels")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
