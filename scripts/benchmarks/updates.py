"""Time of one gradient step (sampling, update, and priorities) compared with the nearest peer's.

Both sides have the same network (a check compares the number of parameters), the same batch size, and a replay buffer with the
same number of rows. This library and Stable-Baselines3 are measured through `learn`, with so many gradient steps per env step
that the env step is negligible; Tianshou through the `update` that its trainer calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from scripts.benchmarks import throughput
from scripts.benchmarks.machine import finish_kernels
from scripts.benchmarks.measurements import Benchmark, Measurement
from scripts.benchmarks.table import Comparison

ATARI = "PongNoFrameskip-v4"
NEVER = 10**9
"""Steps between two copies of the target net, which are no part of the figure."""
KINDS: Mapping[str, Mapping[str, Any]] = {
    "64-64": {"policy": "MlpPolicy", "env": "CartPole-v1", "batch_size": 64, "rows": 10_000, "burst": 200},
    "Atari": {"policy": "CnnPolicy", "env": ATARI, "batch_size": 32, "rows": 2_000, "burst": 20},
}
"""Observation, network and batch: two hidden layers of 64, and the network of Mnih et al. 2015 on stacked frames."""
PEERS = {
    "DQN": "stable_baselines3",
    "QRDQN": "sb3_contrib",
    "C51": "tianshou",
    "IQN": "tianshou",
    "FQF": "tianshou",
    "Rainbow": "tianshou",
}
SHORT = {"stable_baselines3": "sb3", "sb3_contrib": "sb3-contrib", "tianshou": "tianshou"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "DQN": {},
    "QRDQN": {"n_quantiles": 200},
    # tianshou chooses the next action by the online net in each of these
    "C51": {"n_atoms": 51, "v_min": -10.0, "v_max": 10.0, "double_q": True},
    "IQN": {"n_taus": 64, "n_target_taus": 64, "n_policy_taus": 32, "double_q": True},
    "FQF": {"n_fractions": 32, "double_q": True},
    "Rainbow": {"n_atoms": 51, "v_min": -10.0, "v_max": 10.0, "n_steps": 3},
}
"""Ours; Tianshou's equal settings stand in `tianshou_agents.py`."""


def ours(*, variant: str, kind: str, seconds: float, device: str = "cpu") -> dict[str, float]:
    """Microseconds of one of our gradient steps, and how many numbers it trains."""
    chosen, name = KINDS[kind], "CategoricalDQN" if variant == "C51" else variant
    settings = {**cadence(kind, device), **SETTINGS[variant]}
    model = throughput._ours(name, chosen["policy"], chosen["env"], 1, settings)
    model.learn(chosen["rows"] + 1)  # fills the replay; after the last step the first burst is traced or compiled
    return {"": _through_learn(model, seconds), "parameters": float(_trained(model.policy.q_net))}


def sb3(
    *, variant: str, kind: str, seconds: float, threads: int | None = None, device: str = "cpu"
) -> dict[str, float]:
    """The same of Stable-Baselines3's DQN, or of sb3-contrib's QR-DQN."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    chosen = KINDS[kind]
    settings = cadence(kind, device)
    settings["policy_kwargs"] = {**settings["policy_kwargs"], **SETTINGS[variant]}  # the quantiles are said there
    model = throughput._sb3(variant, chosen["policy"], chosen["env"], 1, settings)
    model.learn(chosen["rows"] + 1)
    net = model.quantile_net if variant == "QRDQN" else model.q_net
    return {"": _through_learn(model, seconds), "parameters": float(_trained(net))}


def tianshou(*, variant: str, kind: str, seconds: float, threads: int | None = None) -> dict[str, float]:
    """The same of Tianshou's."""
    import torch
    from tianshou.utils.torch_utils import policy_within_training_step

    from scripts.benchmarks.tianshou_agents import agent, replay

    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    chosen = KINDS[kind]
    algorithm, trained = agent(variant, kind, SETTINGS[variant])
    buffer = replay(variant, kind, chosen["rows"])
    with policy_within_training_step(algorithm.policy):
        spent = _timed(lambda: algorithm.update(buffer, chosen["batch_size"]), seconds)
    return {"": spent, "parameters": float(trained)}


def cadence(kind: str, device: str) -> dict[str, Any]:
    """Settings that ours and Stable-Baselines3's have in common."""
    chosen = KINDS[kind]
    return {
        "batch_size": chosen["batch_size"],
        "buffer_size": chosen["rows"],
        "learning_starts": chosen["rows"],
        "train_freq": 1,
        "gradient_steps": chosen["burst"],
        "target_update_interval": NEVER,
        "learning_rate": 1e-4,
        "policy_kwargs": {} if kind == "Atari" else {"net_arch": [64, 64]},
        "seed": 0,
        "device": device,
    }


def _through_learn(model: Any, seconds: float) -> float:
    """Microseconds of a gradient step, over whole bursts that take about `seconds`."""
    finish_kernels()
    start = time.perf_counter()
    model.learn(1, reset_num_timesteps=False)
    bursts = max(1, round(seconds / (time.perf_counter() - start)))
    before, start = model._n_updates, time.perf_counter()
    model.learn(bursts, reset_num_timesteps=False)
    finish_kernels()
    return (time.perf_counter() - start) / int(model._n_updates - before) * 1e6


def _timed(step: Callable[[], Any], seconds: float) -> float:
    """Microseconds of a call, over about `seconds`, after ten calls of warm-up."""
    for _ in range(10):
        step()
    start = time.perf_counter()
    calls = 0
    while (spent := time.perf_counter() - start) < seconds:
        step()
        calls += 1
    return spent / calls * 1e6


def _trained(net: Any) -> int:
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)


def update_benchmark(seconds: float) -> Benchmark:
    """Every variant that has a peer, on both networks; a peer of small nets also with one thread, as ours has."""
    measurements: list[Measurement] = []
    comparisons: list[Comparison] = []
    for kind in KINDS:
        for variant, package in PEERS.items():
            common = {"variant": variant, "kind": kind, "seconds": seconds}
            mine, theirs = f"{variant} {kind} ours", f"{variant} {kind} {SHORT[package]}"
            call = "updates.tianshou" if package == "tianshou" else "updates.sb3"
            measurements.append(Measurement(mine, "updates.ours", common))
            measurements.append(Measurement(theirs, call, common, package))
            peers = [theirs]
            if kind == "64-64":
                peers.append(f"{theirs} 1 thread")
                measurements.append(Measurement(peers[-1], call, {**common, "threads": 1}, package))
            comparisons.append(Comparison(f"{variant} {kind}: times faster", (mine,), tuple(peers), at_least=1.0))
            sizes = tuple(f"{name} parameters" for name in (mine, theirs))
            comparisons.append(
                Comparison(
                    f"{variant} {kind}: check: parameters, ratio", sizes[:1], sizes[1:], at_least=0.99, at_most=1.01
                )
            )
    return Benchmark(
        "updates", "µs per gradient step, sample and feedback included",
        tuple(measurements), tuple(comparisons), less_is_better=True,
    )  # fmt: skip
