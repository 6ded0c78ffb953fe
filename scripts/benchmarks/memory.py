"""Recurrent and memoryless agents on environments that require a memory: the R2D2 preset, and the same agent without LSTM.

    python scripts/benchmarks/memory.py TMaze --seed 0
    python scripts/benchmarks/memory.py TMaze --seed 0 --without
    python scripts/benchmarks/memory.py CartPoleNoVelocity --seed 0

Prints one line: environment, agent, seed, steps, minutes, mean return of 100 greedy episodes, share of those above a bound.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

BOUNDS = {"TMaze": 3.0, "CartPoleNoVelocity": 450.0}
"""A return above it is a game won."""
OF_SEQUENCES = (
    "batch_T",
    "batch_B",
    "warmup_T",
    "store_rnn_state_interval",
    "replay_ratio",
    "count_burn_in",
    "policy_kwargs",
)


def build(name: str, seed: int, without: bool, device: str = "cpu") -> tuple[Any, int]:
    """The model, and the steps of its preset."""
    from sb_dqn import DQN, R2D2, make_vec_env
    from sb_dqn.presets import find_preset

    env_id = f"sb_dqn/{name}-v0"
    preset = find_preset("R2D2", env_id)
    assert preset is not None
    env = make_vec_env(env_id, preset.n_envs, seed=seed)
    if not without:
        return R2D2(preset.policy, env, seed=seed, device=device, **preset.settings), preset.n_timesteps
    kept = {key: value for key, value in preset.settings.items() if key not in OF_SEQUENCES}
    same: dict[str, Any] = {
        **kept, "batch_size": 256, "train_freq": 16, "double_q": True, "dueling": True, "max_grad_norm": 80.0,
        "prioritized_replay": {"alpha": 0.9, "beta": 0.6}, "exploration": {"schedule": 0.4, "ladder": "apex"},
    }  # fmt: skip
    return DQN("MlpPolicy", env, seed=seed, device=device, **same), preset.n_timesteps


def main() -> None:
    """Trains, evaluates, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(BOUNDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without", action="store_true", help="the same without a memory")
    parser.add_argument("--timesteps", type=int, help="default: the preset's")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--every", type=int, help="a line after so many steps, too")
    chosen = parser.parse_args()

    from sb_dqn import evaluate_policy, make_vec_env

    model, steps = build(chosen.name, chosen.seed, chosen.without, chosen.device)
    steps = chosen.timesteps or steps
    start = time.perf_counter()
    tests = make_vec_env(f"sb_dqn/{chosen.name}-v0", 10)

    def say() -> None:
        returns: Any = evaluate_policy(model, tests, n_eval_episodes=100, return_episode_rewards=True)[0]
        won = sum(one > BOUNDS[chosen.name] for one in returns) / len(returns)
        minutes = (time.perf_counter() - start) / 60
        agent = "DQN without memory" if chosen.without else "R2D2"
        print(
            f"{chosen.name}, {agent}, seed {chosen.seed}, {model.num_timesteps:,} steps, {minutes:.1f} min: "
            f"return {sum(returns) / len(returns):.2f}, won {won:.0%}",
            flush=True,
        )

    class Lines:
        """Says how it stands now and then; training goes on undisturbed."""

        due = chosen.every or 0

        def __call__(self, names: Any, _: Any) -> bool:
            if chosen.every and model.num_timesteps >= self.due and model.num_timesteps < steps:
                say()
                self.due += chosen.every
            return True

    model.learn(steps, callback=Lines())
    say()


if __name__ == "__main__":
    main()
