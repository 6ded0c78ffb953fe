"""Stages of `scripts/gpu`: each measures one thing and returns its figures."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from scripts.benchmarks.gpu_models import (
    COMPILED,
    GRAPHS,
    RATES,
    TRAINING,
    UPDATES,
    Run,
    make_model,
    no_fallback,
    traced_update,
    warm_up,
)
from scripts.benchmarks.machine import finish_kernels, machine, versions

ROOT = Path(__file__).resolve().parents[2]


class Setup(NamedTuple):
    """How a stage runs."""

    device: str
    """"cuda", or "cpu" for a rehearsal."""
    rehearse: bool = False
    """Small batches and few steps, whose figures mean nothing."""
    names: tuple[str, ...] = ()
    """Rows of the stage's table; all of them by default."""

    def chosen(self, table: Mapping[str, Run]) -> dict[str, Run]:
        """Returns the rows to measure.

        Raises:
            ValueError: the table has none of `names`.
        """
        chosen = {name: run for name, run in table.items() if name in (self.names or table)}
        if not chosen:
            raise ValueError(f"names must be among {list(table)}, got {list(self.names)}")
        return chosen


PREFIX = "figures: "
"""Of the lines of output that hold figures."""


class Figures(dict[str, Any]):
    """Figures by name. Each new one is printed with all that are there, so that a stage which is ended keeps them."""

    def measure(self, name: str, measurement: Callable[[], Any]) -> None:
        """Adds a figure, or the reason why there is none; the other figures are still of use."""
        try:
            self[name] = measurement()
        except Exception as error:
            self[name] = f"{type(error).__name__}: {str(error)[:300]}"
        self.print()
        _free_memory()

    def print(self) -> None:
        print(f"{PREFIX}{json.dumps(self)}", flush=True)

    @property
    def failures(self) -> list[str]:
        """What stands in place of figures that could not be measured."""
        return [value for value in self.values() if isinstance(value, str)]


def facts(setup: Setup) -> Figures:
    """Returns the device, versions, and the cost of a kernel launch, of a graph launch and of small copies, in µs."""
    import torch

    found = Figures(machine=machine(), versions=versions())
    if setup.device == "cpu":
        return found
    properties = torch.cuda.get_device_properties(0)
    found["device"] = {"name": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
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


def marked_tests(setup: Setup) -> Figures:
    """Runs the tests that need a GPU, and returns their last line.

    Raises:
        RuntimeError: a test fails.
    """
    # on the CPU no test has the mark `gpu` and runs, so the others of its files do
    mark = "gpu" if setup.device == "cuda" else "not gpu"
    files = sorted(str(path) for path in (ROOT / "tests").rglob("test_*.py") if "mark.gpu" in path.read_text("utf-8"))
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=--import-mode=importlib", "-m", mark]
    # without it matrix products are not deterministic, nor with more than one workspace cuDNN's recurrent layers
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
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
    return Figures(summary={"last line": lines[-1]})


def updates(setup: Setup) -> Figures:
    """Returns µs per update of each algorithm: eager, captured, and compiled with a captured graph."""
    figures, chosen = Figures(), setup.chosen(UPDATES)
    fast = "captured" if setup.device == "cuda" else "traced"
    cases = [(name, mode) for name in chosen for mode in ("eager", fast)]
    # the compiler takes half a minute for each, so it comes last
    cases += [(name, "compiled") for name in COMPILED if name in chosen and not setup.rehearse]
    for name, mode in cases:
        figures.measure(f"{name}, {mode}", partial(update_time, chosen[name], mode, setup))
    return figures


def update_time(run: Run, mode: str, setup: Setup) -> float:
    """Returns µs per update.

    Raises:
        RuntimeError: the update does not run in this mode.
    """
    model = make_model(run, setup.device, setup.rehearse, torch_compile=mode == "compiled")
    model.mode = mode
    with no_fallback():
        warm_up(model)
    if mode != "eager":
        traced_update(model, setup.device)
    # on-policy updates repeat those of the last rollout, without acting
    return _microseconds(model.gradient_step, seconds=0.0 if setup.rehearse else 2.0)


def training(setup: Setup) -> Figures:
    """Returns env steps per second of `learn` in the steady state, and those of Stable-Baselines3 on the same machine."""
    return _rates(TRAINING, setup)


def rates(setup: Setup) -> Figures:
    """Returns env steps per second of `learn` with overlapped acting, bfloat16 and more lanes."""
    return _rates(RATES, setup)


def _rates(table: Mapping[str, Run], setup: Setup) -> Figures:
    figures = Figures()
    for name, run in setup.chosen(table).items():
        figures.measure(name, partial(training_rate, run, setup))
    return figures


def training_rate(run: Run, setup: Setup) -> float:
    """Returns env steps per second, with all updates finished.

    Raises:
        RuntimeError: a function runs eagerly that should be traced.
    """
    model = make_model(run, setup.device, setup.rehearse)
    try:
        with no_fallback():
            warm_up(model)
            finish_kernels()
            before, start = int(model.num_timesteps), time.perf_counter()
            model.learn(120 if setup.rehearse else run.steps, reset_num_timesteps=False)
            finish_kernels()
        return round((int(model.num_timesteps) - before) / (time.perf_counter() - start), 1)
    finally:
        model.env.close() if run.library == "sb3" else model.close()


def memory(setup: Setup) -> Figures:
    """Returns the device memory in MiB after 200 and after 2,000 updates.

    Raises:
        RuntimeError: it grew.
    """
    run = Run("PERDQN", "MlpPolicy", "CartPole-v1", 1, {"learning_starts": 200, "train_freq": 1})
    model = make_model(run, setup.device, setup.rehearse)
    model.learn(400)
    figures = Figures(after_200=_allocated())
    model.learn(100 if setup.rehearse else 1_800, reset_num_timesteps=False)
    figures["after_2000"] = _allocated()
    figures.print()
    if figures["after_2000"] > figures["after_200"]:
        raise RuntimeError("the memory of the device must not grow with updates")
    return figures


def truth(setup: Setup) -> Figures:
    """Returns what may go wrong once other graphs of the process are gone: the difference between a captured and an eager gradient
    after their memory is written over, and the memory in MiB after each of six traces.

    Raises:
        RuntimeError: the gradients differ, or the memory grows.
    """
    import torch

    small = {"learning_starts": 64, "buffer_size": 2_000, "batch_size": 16, "policy_kwargs": {"net_arch": [512, 512]}}
    run = Run("DQN", "MlpPolicy", "CartPole-v1", 1, small)
    other, model = make_model(run, setup.device), make_model(run, setup.device)
    with no_fallback():
        other.learn(200)
        model.learn(200)
        weight = next(iter(model.policy.parameters()))
        weight.requires_grad_(False)  # so that the update is traced again, and the first trace is gone
        model.learn(40, reset_num_timesteps=False)
    del other
    _free_memory()
    junk = [torch.full((2**22,), float("nan"), device=setup.device) for _ in range(2 if setup.rehearse else 40)]
    model.replay.refresh()
    numbers, update = traced_update(model, setup.device)
    noise = torch.rand_like(numbers)
    captured = update(noise)[0]
    eager = model.update_runner.sample_and_differentiate(model.replay.sample_from, noise)[0]
    difference = float((captured - eager).abs().max() / eager.abs().max())
    del junk
    allocated = []
    for turn in range(6):
        weight.requires_grad_(turn % 2 == 0)
        with no_fallback():
            model.learn(20, reset_num_timesteps=False)
        _free_memory()
        allocated.append(_allocated())
    figures = Figures(relative_difference=difference, memory_of_recordings=allocated)
    figures.print()
    if not difference < 1e-4:
        raise RuntimeError("a captured gradient must be that of an eager update after other graphs are gone")
    if allocated[-1] > allocated[1]:  # the first two traces allocate workspaces
        raise RuntimeError("the memory of the device must not grow with traces")
    return figures


WAYS: dict[str, tuple[str, bool, bool, dict[str, Any]]] = {
    "fp32": ("highest", False, False, {}),
    "fp32, benchmark": ("highest", True, False, {}),
    "tf32": ("high", False, False, {}),
    "tf32, benchmark": ("high", True, False, {}),
    "fp32, plain convolutions": ("highest", False, True, {}),
    "bf16": ("highest", False, False, {"precision": "bf16"}),
    "bf16, benchmark": ("highest", True, False, {"precision": "bf16"}),
}
"""Precision of float32 products, `cudnn.benchmark`, convolutions of torch in place of `StridedConv2d`, and arguments."""


def device_times(setup: Setup) -> Figures:
    """Returns µs on the device of one replay of an update's graph, without Python, for each of `WAYS`."""
    figures = Figures()
    for name, run in setup.chosen(GRAPHS).items():
        for way in WAYS:
            figures.measure(f"{name}, {way}", partial(_device_time, run, way, setup))
    return figures


def _device_time(run: Run, way: str, setup: Setup) -> float:
    precision, benchmark, plain, settings = WAYS[way]
    model = make_model(run, setup.device, setup.rehearse, **settings)
    with _torch_settings(precision, benchmark, plain), no_fallback():
        warm_up(model)
        numbers, update = traced_update(model, setup.device)
        if setup.device == "cpu":
            return _microseconds(lambda: update(numbers), seconds=0.0)
        return _graph_time(update)


@contextmanager
def _torch_settings(precision: str, benchmark: bool, plain: bool) -> Iterator[None]:
    """Sets what may change the time of a graph, after the model is made, which may set it too."""
    import torch

    from sb_dqn.nn.layers.convolution import StridedConv2d

    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark, StridedConv2d._conv_forward
    convolution: Any = torch.nn.Conv2d._conv_forward if plain else StridedConv2d._conv_forward
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark, StridedConv2d._conv_forward = benchmark, convolution  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.benchmark, StridedConv2d._conv_forward = before[1:]  # type: ignore[method-assign]


def _graph_time(captured: Any, times: int = 50) -> float:
    """Returns the µs between two events around replays of a graph, per replay."""
    import torch

    events: Any = torch.cuda.Event  # without types
    start, end = events(enable_timing=True), events(enable_timing=True)
    captured._graph.replay()
    start.record()
    for _ in range(times):
        captured._graph.replay()
    end.record()
    end.synchronize()
    return round(float(start.elapsed_time(end)) / times * 1e3, 1)


def _microseconds(call: Callable[[], Any], seconds: float = 0.5) -> float:
    """Returns the mean time of a call, with all its kernels finished; of a single call for 0 seconds."""
    times = 10 if seconds else 1
    for _ in range(times):
        call()
    finish_kernels()
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < seconds:
        for _ in range(times):
            call()
        count += times
    finish_kernels()
    return round((time.perf_counter() - start) / count * 1e6, 2)


def _allocated() -> float:
    import torch

    return round(torch.cuda.memory_allocated() / 2**20, 1)


def _free_memory() -> None:
    """Frees the memory of models that are gone; they are parts of reference cycles."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Stage(NamedTuple):
    """What `scripts/gpu` runs in a process of its own."""

    measure: Callable[[Setup], Figures]
    limit: float
    """Seconds after which it is ended."""
    needs_cuda: bool = True


STAGES = {
    "facts": Stage(facts, 60.0, needs_cuda=False),
    "tests": Stage(marked_tests, 220.0),
    "memory": Stage(memory, 60.0),
    "truth": Stage(truth, 60.0),
    "device_times": Stage(device_times, 200.0),
    "training": Stage(training, 260.0),
    "rates": Stage(rates, 190.0),
    "updates": Stage(updates, 330.0),
}
