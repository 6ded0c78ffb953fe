"""Benchmark definitions: measurements, their settings, and expected results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scripts.benchmarks.actors import actor_benchmarks
from scripts.benchmarks.learners import learner_benchmark
from scripts.benchmarks.measurements import Benchmark, Measurement
from scripts.benchmarks.prioritized import prioritized_benchmark
from scripts.benchmarks.sequences import sequence_benchmark
from scripts.benchmarks.table import Comparison
from scripts.benchmarks.updates import update_benchmark

OURS, COMPILED = "ours", "ours compiled"
SB3, SB3_ONE = "sb3", "sb3 1 thread"
ZOO_CARTPOLE: Mapping[str, Any] = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [256, 256]},
}
"""RL Baselines3 Zoo, hyperparams/dqn.yml."""
ZOO_CARTPOLE_PPO: Mapping[str, Any] = {
    "learning_rate": 1e-3,
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 20,
    "gamma": 0.98,
    "gae_lambda": 0.8,
}
"""RL Baselines3 Zoo, hyperparams/ppo.yml, at the rate and clip range that it begins with."""
NATURE: Mapping[str, Any] = {
    "batch_size": 32,
    "buffer_size": 20_000,
    "learning_rate": 1e-4,
    "target_update_interval": 1_000,
    "exploration_final_eps": 0.01,
}
"""RL Baselines3 Zoo's Atari settings, with a buffer that fits into memory beside the peer's."""


@dataclass(frozen=True)
class Scale:
    """How much is measured: `full` for figures, `quick` to see that everything runs."""

    cartpole: tuple[int, int] = (6_400, 25_600)
    """Env steps of warm-up, and measured; multiples of 256, the Zoo's setting updates in blocks."""
    pendulum: tuple[int, int] = (400, 1_200)
    """The same, one update for each step."""
    pong: tuple[int, int, int] = (5_000, 6_000, 2_000)
    """`learning_starts`, env steps of warm-up, and measured."""
    whole: int = 50_000
    ticks: tuple[int, int] = (100, 40)
    """Ticks in a block, and blocks."""
    replay_rows: int = 100_000
    sampling_seconds: float = 3.0
    update_seconds: float = 3.0
    sequences: tuple[int, ...] = (32, 64)
    """Of an update of R2D2."""
    learners: tuple[int, int] = (4_000, 4_000)
    """Env steps of warm-up, and measured."""
    actors: tuple[float, tuple[int, int], int, int] = (10.0, (4_000, 4_000), 40_000, 25)
    """See `actor_benchmarks`."""
    compiled: bool = field(default=True)
    """Whether torch.compile takes part; it starts slowly."""


FULL = Scale()
QUICK = Scale(
    (1_536, 2_560),
    (150, 60),
    (200, 400, 160),
    2_000,
    (20, 4),
    10_000,
    0.3,
    0.2,
    (1,),
    (400, 200),
    (0.5, (200, 200), 640, 1),
    compiled=False,
)


def suite(scale: Scale) -> tuple[Benchmark, ...]:
    """Every benchmark, in the order in which they are run."""
    cartpole, sac = {"env": "CartPole-v1"}, {"env": "Pendulum-v1", "algorithm": "SAC"}
    lanes, same = {**cartpole, "lanes": 8}, (_same_updates(OURS, SB3),)
    return (
        _training(scale, "cartpole-default", scale.cartpole, cartpole, best=3.5, plain=3.0, checks=same),
        _cartpole_zoo(scale),
        _training(scale, "pendulum-sac", scale.pendulum, sac, checks=same),
        _training(scale, "cartpole-a2c", scale.cartpole, {**lanes, "algorithm": "A2C"}),
        _training(scale, "cartpole-ppo", scale.cartpole, {**lanes, "algorithm": "PPO", "settings": ZOO_CARTPOLE_PPO}),
        _cartpole_whole(scale),
        *((_compile_startup(),) if scale.compiled else ()),
        _pong(scale, lanes=1, fp32=1.6, bf16=2.4),
        _pong(scale, lanes=8, fp32=1.4, bf16=2.0),
        _stream(scale),
        _replay(scale),
        update_benchmark(scale.update_seconds),
        sequence_benchmark(scale.update_seconds, scale.sequences),
        prioritized_benchmark(scale.update_seconds, compiled=scale.compiled),
        _memory(scale),
        _startup(),
        learner_benchmark(scale.learners),
        *actor_benchmarks(*scale.actors),
    )


def _train(name: str, library: str, common: Mapping[str, Any], **settings: Any) -> Measurement:
    """One side of a training benchmark; `settings` on top of the common ones."""
    arguments = {**common, "library": library, "settings": {**common["settings"], **settings}}
    return Measurement(name, "throughput.train", arguments, "stable_baselines3" if library == "sb3" else None)


def _both_sides(scale: Scale, common: Mapping[str, Any]) -> tuple[Measurement, ...]:
    compiled = (_train(COMPILED, "sb_dqn", common, torch_compile=True),) if scale.compiled else ()
    return (
        _train(OURS, "sb_dqn", common),
        _train(SB3, "sb3", common),
        *compiled,
        _train(SB3_ONE, "sb3", {**common, "threads": 1}),
    )


def _training(
    scale: Scale,
    name: str,
    sizes: tuple[int, int],
    common: Mapping[str, Any],
    *,
    best: float = 1.5,
    plain: float = 1.5,
    checks: tuple[Comparison, ...] = (),
) -> Benchmark:
    """Training of an `MlpPolicy`: `sizes` are env steps of warm-up, and measured; `best` and `plain` what each race should reach."""
    lanes = common.get("lanes", 1)
    every = {"policy": "MlpPolicy", "settings": {}, "warm_up": sizes[0], "steps": sizes[1], **common}
    return Benchmark(
        name,
        "env steps/s" if lanes == 1 else f"env steps/s, {lanes} lanes",
        _both_sides(scale, every),
        (
            Comparison("times its better thread count", (OURS, COMPILED), (SB3, SB3_ONE), at_least=best),
            Comparison("the same without a compiler", (OURS,), (SB3, SB3_ONE), at_least=plain),
            *checks,
        ),
    )


def _cartpole_zoo(scale: Scale) -> Benchmark:
    warm_up, steps = scale.cartpole
    common = {"policy": "MlpPolicy", "env": "CartPole-v1", "settings": ZOO_CARTPOLE, "warm_up": warm_up, "steps": steps}
    return Benchmark(
        "cartpole-zoo",
        "env steps/s",
        _both_sides(scale, common),
        (
            Comparison("times its default threads", (OURS, COMPILED), (SB3,), at_least=2.0),
            Comparison("times its better thread count", (OURS, COMPILED), (SB3, SB3_ONE), at_least=1.6),
            _same_updates(OURS, SB3),
        ),
    )


def _same_updates(ours: str, peer: str) -> Comparison:
    """A check, not a race: both sides must have made as many gradient steps for each env step."""
    label, pair = "check: gradient steps per env step, ratio", (f"{ours} updates/step", f"{peer} updates/step")
    return Comparison(label, pair[:1], pair[1:], at_least=0.97, at_most=1.03)


def _cartpole_whole(scale: Scale) -> Benchmark:
    run = f".learn({scale.whole})"
    ours = "from sb_dqn import DQN; DQN('MlpPolicy', 'CartPole-v1', seed=0, device='cpu'{more})" + run
    peer = "from stable_baselines3 import DQN; DQN('MlpPolicy', 'CartPole-v1', seed=0, device='cpu')" + run
    compiled = Measurement(
        COMPILED, "processes.python", {"code": ours.format(more=", torch_compile=True"), "compile_cache": "empty"}
    )
    return Benchmark(
        "cartpole-whole",
        f"s for {scale.whole:,} steps, imports and start-up included",
        (
            Measurement(OURS, "processes.python", {"code": ours.format(more="")}),
            Measurement(SB3, "processes.python", {"code": peer}, "stable_baselines3"),
            *((compiled,) if scale.compiled else ()),
            Measurement(
                SB3_ONE,
                "processes.python",
                {"code": f"import torch; torch.set_num_threads(1); {peer}"},
                "stable_baselines3",
            ),
        ),
        (
            Comparison("times faster", (OURS,), (SB3, SB3_ONE), at_least=1.0),
            *(
                (Comparison("times faster, compiled", (COMPILED,), (SB3, SB3_ONE), at_least=1.0),)
                if scale.compiled
                else ()
            ),
        ),
        less_is_better=True,
    )


def _compile_startup() -> Benchmark:
    code = "from sb_dqn import DQN; DQN('MlpPolicy', 'CartPole-v1', seed=0, device='cpu'{more}).learn(200)"
    compiled = code.format(more=", torch_compile=True")
    call = "processes.python"
    return Benchmark(
        "compile-startup",
        "s for 200 steps of CartPole, imports included",
        (
            Measurement("as it is", call, {"code": code.format(more="")}),
            Measurement("compiled, first time", call, {"code": compiled, "compile_cache": "empty"}),
            Measurement("compiled, again", call, {"code": compiled, "compile_cache": "filled", "untimed": 1}),
        ),
        (
            Comparison("s that compiling costs, first time", ("compiled, first time",), ("as it is",), "difference"),
            Comparison("s that compiling costs, again", ("compiled, again",), ("as it is",), "difference"),
        ),
        less_is_better=True,
    )


def _pong(scale: Scale, *, lanes: int, fp32: float, bf16: float) -> Benchmark:
    starts, warm_up, steps = scale.pong
    common = {
        "policy": "CnnPolicy",
        "env": "PongNoFrameskip-v4",
        "settings": {**NATURE, "learning_starts": starts},
        "warm_up": warm_up,
        "steps": steps,
        "lanes": lanes,
    }
    every_four = {"train_freq": 4, "gradient_steps": 1}
    # its train_freq counts ticks: one tick of eight lanes pays for two updates
    peer = every_four if lanes == 1 else {"train_freq": 1, "gradient_steps": lanes // 4}
    low = "ours bf16"
    return Benchmark(
        f"pong-{lanes}",
        "env steps/s",
        (
            _train(OURS, "sb_dqn", common, **every_four),
            _train(SB3, "sb3", common, **peer),
            _train(low, "sb_dqn", common, **every_four, precision="bf16"),
        ),
        (
            Comparison("times, fp32", (OURS,), (SB3,), at_least=fp32),
            Comparison("times, bf16", (low,), (SB3,), at_least=bf16),
            _same_updates(OURS, SB3),
        ),
    )


def _stream(scale: Scale) -> Benchmark:
    ticks, blocks = scale.ticks
    return Benchmark(
        "stream",
        "env steps/s, Pong at random, 8 lanes",
        (Measurement("", "components.stream", {"lanes": 8, "ticks": ticks, "blocks": blocks}),),
        (Comparison("share of the bare emulator", ("ours",), ("bare",), at_least=0.95),),
    )


def _replay(scale: Scale) -> Benchmark:
    targets = {32: 3500.0, 256: 600.0}
    common = {"rows": scale.replay_rows, "n_steps": 3, "seconds": scale.sampling_seconds, "batch_sizes": list(targets)}
    lanes = {"1 lane": 1, "8 lanes": 8}
    comparisons: list[Comparison] = []
    for name in lanes:
        for size, target in targets.items():
            case = f"{name} batch {size}"
            comparisons.append(Comparison(case, (case,), how="value", at_least=target))
            comparisons.append(Comparison(f"{case}: times as fast as eagerly", (case,), (f"{case} eagerly",)))
    return Benchmark(
        "replay",
        f"batches/s of {scale.replay_rows:,} stacked Atari rows, n-step 3",
        tuple(Measurement(name, "components.sampling", {**common, "lanes": number}) for name, number in lanes.items()),
        tuple(comparisons),
    )


def _memory(scale: Scale) -> Benchmark:
    name = "resident"
    return Benchmark(
        "memory",
        f"bytes per env step of {scale.replay_rows:,} Atari rows, n-step 3",
        (Measurement(name, "components.memory", {"rows": scale.replay_rows, "lanes": 8, "n_steps": 3}),),
        (Comparison("bytes per env step", (name,), how="value", at_most=7300),),
        less_is_better=True,
    )


def _startup() -> Benchmark:
    everything = "import sb_dqn; [getattr(sb_dqn, name) for name in sb_dqn.__all__]"
    codes = {"import sb_dqn": "import sb_dqn", "every public name": everything, "import torch": "import torch"}
    imports = (Measurement(name, "processes.python", {"code": code, "untimed": 1}) for name, code in codes.items())
    return Benchmark(
        "startup",
        "s, interpreter included",
        (Measurement("sb-dqn --help", "processes.help_text", {"untimed": 1}), *imports),
        (
            Comparison("sb-dqn --help", ("sb-dqn --help",), how="value", at_most=0.5),
            Comparison("import sb_dqn", ("import sb_dqn",), how="value", at_most=0.5),
            Comparison(
                "s that all names cost over torch alone",
                ("every public name",),
                ("import torch",),
                "difference",
                at_most=0.5,
            ),
        ),
        less_is_better=True,
    )
