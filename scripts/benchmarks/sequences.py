"""Share of the network in an R2D2 update: one update compared with the bare forward and backward passes on the same data.

The data are sequences of 80 trained steps after 40 of burn-in and 5 beyond, of single 84 x 84 frames; the network is the Nature
CNN with 512 units, an LSTM of 512, and two streams of 512. The update samples sequences by priority, gathers their frames, unrolls
online and target net, steps the optimizer and writes priorities back. The bare passes use the same two nets on prepared frames:
PyTorch's LSTM from a zero state without resets within the burn-in, random targets, and the gradient.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from scripts.benchmarks.machine import finish_kernels
from scripts.benchmarks.measurements import Benchmark, Measurement
from scripts.benchmarks.table import Comparison

LANES, ROWS = 8, 600
SMALLEST_SHARE = 1 / 1.15
"""Of the update, the network's."""


def update_and_network(*, sequences: int, seconds: float, device: str = "cpu") -> dict[str, float]:
    """Milliseconds of one update, and of the bare network."""
    import numpy as np
    import torch

    model = _model(sequences, device)
    model.learn(1)
    ring, rng = model.replay.ring, np.random.default_rng(0)
    for _ in range(ROWS - 2):
        _fill_one_row(model, rng)
    model.replay.refresh()
    batch = model.replay.sample_from(torch.rand(sequences, dtype=torch.float64, device=device))
    bare = _bare(model, batch)
    assert ring.startable() > 0
    return _in_turn({"update": model.gradient_step, "network": bare}, seconds)


def _model(sequences: int, device: str) -> Any:
    import gymnasium
    import numpy as np

    from sb_dqn import R2D2

    class Frames(gymnasium.Env[Any, Any]):
        """One grey frame, as ALE's, and six actions."""

        observation_space = gymnasium.spaces.Box(0, 255, (1, 84, 84), np.uint8)
        action_space = gymnasium.spaces.Discrete(6)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return np.zeros((1, 84, 84), np.uint8), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return np.zeros((1, 84, 84), np.uint8), 0.0, False, False, {}

    return R2D2(
        "CnnLstmPolicy", [Frames] * LANES, batch_B=sequences, buffer_size=ROWS * LANES, learning_starts=10**9, seed=0,
        device=device,
    )  # fmt: skip


def _fill_one_row(model: Any, rng: Any) -> None:
    """Random frames, states and values, and an episode's end now and then, past the net: it would take minutes."""
    import numpy as np

    from sb_dqn.types import Rows, Slot

    frames = rng.integers(0, 256, (LANES, 1, 84, 84), dtype=np.uint8)
    last = rng.random(LANES) < 1 / 500
    reward = rng.normal(size=LANES).astype(np.float32)
    slot = Slot({"obs": frames}, reward, reward, last.copy(), last, np.ones(LANES, bool))
    state = rng.normal(size=(LANES, model.policy.state_size)).astype(np.float32)
    told = {"state": state, "q_taken": reward, "q_best": reward}
    model.replay.extend(Rows(rng.integers(0, 6, LANES), (slot,), np.ones(LANES, bool), LANES, extra=told))


def _bare(model: Any, batch: Any) -> Callable[[], Any]:
    import torch

    online, target = model.policy.q_net, model.policy.q_net_target
    extra, obs = batch.extra, batch.obs
    settings = model.replay_config.sequences
    warmup, length, count = settings.warmup_T, settings.batch_T, batch.place.shape[1]
    goal = torch.randn(length * count, device=batch.place.device)

    def unroll(net: Any, first: int, last: int, state: Any) -> Any:
        some = slice(first * count, last * count)
        read = net.recurrent_inputs(
            {"obs": obs["obs"][some]}, extra["previous_action"][some], extra["previous_reward"][some]
        )
        return net.recurrent_layer(read.view(last - first, count, -1), state)

    def through(net: Any, grad: bool) -> Any:
        with torch.no_grad():
            _, state = unroll(net, 0, warmup, torch.zeros(count, model.policy.state_size))
        with torch.set_grad_enabled(grad):
            trained, state = unroll(net, warmup, warmup + length, state)
        with torch.no_grad():
            beyond, _ = unroll(net, warmup + length, warmup + length + 5, state.detach())
            q = net({"features": torch.cat([trained[5:].detach(), beyond]).flatten(0, 1)}).q
        return trained, q

    def run() -> Any:
        through(target, False)
        trained, _ = through(online, True)
        q = online({"features": trained.flatten(0, 1)}).of(batch.action)
        return torch.autograd.grad((q - goal).square().mean(), list(online.parameters()))

    return run


def _in_turn(sides: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Median milliseconds of each, one after the other until the time is up, so that both see the same machine."""
    from statistics import median

    taken: dict[str, list[float]] = {name: [] for name in sides}
    for run in sides.values():
        run()  # the first passes allocate
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(taken["update"]) < 3:
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            finish_kernels()
            taken[name].append(1e3 * (time.perf_counter() - start))
    return {name: median(times) for name, times in taken.items()}


def sequence_benchmark(seconds: float, sizes: tuple[int, ...] = (32, 64)) -> Benchmark:
    """The entry of the suite."""
    return Benchmark(
        "r2d2-update",
        "ms",
        tuple(
            Measurement(f"{size} sequences", "sequences.update_and_network", {"sequences": size, "seconds": seconds})
            for size in sizes
        ),
        tuple(
            Comparison(
                f"network / update, {size} sequences of 40 + 80 + 5",
                (f"{size} sequences update",),
                (f"{size} sequences network",),
                at_least=round(SMALLEST_SHARE, 2),
            )
            for size in sizes
        ),
        less_is_better=True,
    )
