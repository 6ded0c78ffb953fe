"""Models that the stages of `scripts/gpu` measure, and their settings."""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

ATARI = "PongNoFrameskip-v4"
NATURE: dict[str, Any] = {
    "batch_size": 32,
    "buffer_size": 20_000,
    "learning_rate": 1e-4,
    "learning_starts": 1_000,
    "target_update_interval": 1_000,
    "train_freq": 4,
}
BTR: dict[str, Any] = {"learning_starts": 2_000, "buffer_size": 50_000}
PPO_ATARI: dict[str, Any] = {"n_steps": 128, "batch_size": 256, "n_epochs": 4}
SB3_NATURE = {**NATURE, "train_freq": 1, "gradient_steps": 2}
"""Stable-Baselines3 counts vector steps: two updates for each step of eight environments."""
OVERLAPPED = {"actors": "overlapped"}
BF16 = {"precision": "bf16"}


class Run(NamedTuple):
    """A model and the env steps for which it trains."""

    algorithm: str
    policy: str
    env: str
    lanes: int
    settings: dict[str, Any]
    steps: int = 0
    library: str = "sb_dqn"
    device: str = "cuda"


UPDATES = {
    "DQN 64-64": Run("DQN", "MlpPolicy", "CartPole-v1", 1, {"learning_starts": 200}),
    "PER n-step 64-64": Run("PERDQN", "MlpPolicy", "CartPole-v1", 1, {"learning_starts": 200, "n_steps": 3}),
    "DQN Nature": Run("DQN", "CnnPolicy", ATARI, 1, NATURE),
    "PER Nature": Run("PERDQN", "CnnPolicy", ATARI, 1, {**NATURE, "n_steps": 3}),
    "C51 Nature": Run("CategoricalDQN", "CnnPolicy", ATARI, 1, NATURE),
    "Rainbow Nature": Run("Rainbow", "CnnPolicy", ATARI, 1, NATURE),
    "IQN Nature": Run("IQN", "CnnPolicy", ATARI, 1, NATURE),
    "BTR": Run("BTR", "CnnPolicy", ATARI, 1, {"learning_starts": 1_000, "buffer_size": 20_000}),
    "R2D2": Run("R2D2", "CnnLstmPolicy", ATARI, 1, {"learning_starts": 1_000, "buffer_size": 20_000, "batch_B": 32}),
    "SAC 256-256": Run("SAC", "MlpPolicy", "Pendulum-v1", 1, {}),
    "PPO Nature": Run("PPO", "CnnPolicy", ATARI, 1, {"n_steps": 128, "batch_size": 128}),
}
COMPILED = ("DQN Nature", "BTR", "PPO Nature", "SAC 256-256")
"""Updates that are compiled too."""
GRAPHS = {
    "DQN Nature": Run("DQN", "CnnPolicy", ATARI, 8, NATURE),
    "Rainbow Nature": Run("Rainbow", "CnnPolicy", ATARI, 8, NATURE),
    "BTR": Run("BTR", "CnnPolicy", ATARI, 64, {"learning_starts": 2_000, "buffer_size": 20_000}),
}
"""Updates whose time on the device is measured in several settings of torch."""
TRAINING = {
    "DQN CartPole on the CPU": Run("DQN", "MlpPolicy", "CartPole-v1", 1, {}, 5_000, device="cpu"),
    "DQN CartPole": Run("DQN", "MlpPolicy", "CartPole-v1", 1, {}, 5_000),
    "DQN Nature, 1 lane": Run("DQN", "CnnPolicy", ATARI, 1, NATURE, 4_000),
    "DQN Nature, 8 lanes": Run("DQN", "CnnPolicy", ATARI, 8, NATURE, 16_000),
    "DQN Nature, 8 lanes, bf16": Run("DQN", "CnnPolicy", ATARI, 8, {**NATURE, **BF16}, 16_000),
    "DQN Nature, 32 lanes": Run("DQN", "CnnPolicy", ATARI, 32, NATURE, 16_000),
    "DQN Nature, 8 lanes, Stable-Baselines3": Run("DQN", "CnnPolicy", ATARI, 8, SB3_NATURE, 6_000, "sb3"),
    "BTR Nature, 64 lanes": Run("BTR", "CnnPolicy", ATARI, 64, BTR, 12_800),
    "PPO Nature, 8 lanes": Run("PPO", "CnnPolicy", ATARI, 8, PPO_ATARI, 20_480),
    "PQN Nature, 128 lanes": Run("PQN", "CnnPolicy", ATARI, 128, {}, 40_960),
}
RATES = {
    "DQN Nature, 8 lanes": Run("DQN", "CnnPolicy", ATARI, 8, NATURE, 12_000),
    "DQN Nature, 8 lanes, overlapped": Run("DQN", "CnnPolicy", ATARI, 8, {**NATURE, **OVERLAPPED}, 12_000),
    "DQN Nature, 16 lanes, overlapped": Run("DQN", "CnnPolicy", ATARI, 16, {**NATURE, **OVERLAPPED}, 16_000),
    "DQN Nature, 32 lanes, overlapped": Run("DQN", "CnnPolicy", ATARI, 32, {**NATURE, **OVERLAPPED}, 16_000),
    "BTR Nature, 64 lanes": Run("BTR", "CnnPolicy", ATARI, 64, BTR, 12_800),
    "BTR Nature, 64 lanes, bf16": Run("BTR", "CnnPolicy", ATARI, 64, {**BTR, **BF16}, 12_800),
    "BTR Nature, 64 lanes, bf16, overlapped": Run("BTR", "CnnPolicy", ATARI, 64, {**BTR, **BF16, **OVERLAPPED}, 12_800),
    "PPO Nature, 8 lanes": Run("PPO", "CnnPolicy", ATARI, 8, PPO_ATARI, 16_384),
    "PPO Nature, 16 lanes": Run("PPO", "CnnPolicy", ATARI, 16, {**PPO_ATARI, "batch_size": 512}, 32_768),
}
"""What overlapped acting, bfloat16 and more lanes add. The first of each kind is in `TRAINING` too: figures are compared only within
one run, since the next one may get another device."""
REHEARSED: dict[str, Any] = {
    "learning_starts": 100, "buffer_size": 1_000, "batch_size": 4, "n_steps": 16, "n_epochs": 1, "train_freq": 16,
    "batch_T": 4, "warmup_T": 4, "store_rnn_state_interval": 4, "batch_B": 2,
}  # fmt: skip
"""Settings of a rehearsal, where a class has them."""


def make_model(run: Run, device: str, rehearse: bool = False, **settings: Any) -> Any:
    """Returns the untrained model of a run.

    Args:
        run: one of the tables above.
        device: "cuda", or "cpu" for a rehearsal; a run on the CPU stays there.
        rehearse: with small batches and at most two lanes.
        settings: further arguments of the algorithm.
    """
    if rehearse:
        run = run._replace(lanes=min(run.lanes, 2))
    build = _ours if run.library == "sb_dqn" else _sb3
    return build(run, settings, rehearse, "cpu" if run.device == "cpu" else device)


def _ours(run: Run, further: dict[str, Any], rehearse: bool, device: str) -> Any:
    import sb_dqn
    from scripts.benchmarks import throughput

    settings = {"seed": 0, "device": device, **run.settings, **further}
    if rehearse:
        settings = _reduced(getattr(sb_dqn, run.algorithm), settings)
    return throughput._ours(run.algorithm, run.policy, run.env, run.lanes, settings)


def _sb3(run: Run, further: dict[str, Any], rehearse: bool, device: str) -> Any:
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    from scripts.benchmarks.peer_game import Game

    algorithm = getattr(stable_baselines3, run.algorithm)
    vec_env = DummyVecEnv if rehearse else SubprocVecEnv
    env = VecFrameStack(vec_env([partial(Game, run.env) for _ in range(run.lanes)]), 4)
    settings = {**run.settings, **further}
    return algorithm(
        run.policy, env, seed=0, device=device, **(_reduced(algorithm, settings) if rehearse else settings)
    )


def _reduced(algorithm: type[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Returns settings with those of a rehearsal."""
    smaller = {name: REHEARSED[name] for name in inspect.signature(algorithm).parameters.keys() & REHEARSED.keys()}
    if algorithm.__name__ not in ("PPO", "PQN"):
        smaller.pop("n_steps", None)  # of returns, not of a rollout
    return {**settings, **smaller}


def warm_up(model: Any) -> None:
    """Trains until a few updates are made, so that all is traced; without a replay until those of a rollout are made."""
    arguments = getattr(model, "arguments", None) or vars(model)  # vars: of Stable-Baselines3
    if getattr(model, "keeps_replay", True):
        model.learn(arguments.get("learning_starts", 0) + 20 * model.n_envs + 50)
    else:
        model.learn(2 * arguments["n_steps"] * model.n_envs)
        while not model.rollout.is_complete:
            model.learn(1, reset_num_timesteps=False)


def traced_update(model: Any, device: str) -> tuple[Any, Any]:
    """Returns the drawn numbers and the function of the model's updates; on the CPU, those of large networks are not traced.

    Raises:
        RuntimeError: it is no CUDA graph on "cuda", so that a figure would be that of an eager update.
    """
    from sb_dqn.accelerate.cuda_graph import Captured

    numbers, update = next(iter(model.update_runner.functions.values()))
    if device == "cuda" and not isinstance(update, Captured):
        raise RuntimeError(f"the update must be a CUDA graph, got {type(update).__name__}")
    return numbers, update


@contextlib.contextmanager
def no_fallback() -> Iterator[None]:
    """Forwards stderr.

    Raises:
        RuntimeError: a function could not be traced and ran eagerly, as a line on stderr says.
    """
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            yield
    finally:
        sys.stderr.write(written.getvalue())
    for line in written.getvalue().splitlines():
        if "running without it" in line:
            raise RuntimeError(line)
