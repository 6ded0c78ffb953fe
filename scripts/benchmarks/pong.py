"""Training from pixels with settings from the command line; writes a learning curve over env steps and wall-clock as CSV."""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from sb_dqn.runs.settings_syntax import parse_assignments
from scripts.benchmarks.curves import Curve, mean_sd
from scripts.benchmarks.presets import algorithm


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The command line as keywords of the constructor."""
    updates = options.updates_per_step
    found: dict[str, Any] = {
        "learning_rate": options.learning_rate,
        "buffer_size": options.buffer_size,
        "learning_starts": options.learning_starts,
        "batch_size": options.batch_size,
        "gamma": options.gamma,
        "train_freq": updates.denominator,
        "gradient_steps": updates.numerator,
        "target_update_interval": options.target_interval,
        "exploration_fraction": min(options.exploration_steps / options.steps, 1.0),
        "exploration_final_eps": options.final_epsilon,
        "precision": options.precision,
        "torch_compile": options.torch_compile,
        "device": options.device,
        "seed": options.seed,
        "policy_kwargs": {
            "features_extractor_kwargs": {
                "channels": tuple(options.channels),
                "kernels": tuple(options.kernels),
                "strides": tuple(options.strides),
                "features_dim": options.features,
            },
            "optimizer_kwargs": {"eps": options.adam_eps},
        },
    }
    if options.n_steps is not None:
        found["n_steps"] = options.n_steps
    if options.layer_norm:
        found["policy_kwargs"]["layer_norm"] = True
    if options.double_q:
        found["double_q"] = True
    return found | parse_assignments(options.assignments)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("algo", help="DQN, NStepDQN, Rainbow, …")
    add("--env", default="PongNoFrameskip-v4")
    add("--protocol", default="classic", choices=("classic", "sticky"))
    add("--seed", type=int, default=0)
    add("--steps", type=int, default=300_000, help="env steps over all lanes, at most")
    add("--minutes", type=float, help="of training, at most")
    add("--stop-at", type=float, default=18.0, help="stop when the last 20 training episodes reach this mean")
    add("--stop-at-greedy", type=float, help="stop when a greedy evaluation reaches this mean; none: never")
    add("--lanes", type=int, default=8)
    add("--n-steps", type=int, help="n; none: the algorithm's own")
    add("--layer-norm", action="store_true", help="of the torso")
    add("--double-q", action="store_true")
    add(
        "--set",
        dest="assignments",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another keyword; repeatable",
    )
    add("--batch-size", type=int, default=32)
    add("--learning-rate", type=float, default=2.5e-4)
    add("--adam-eps", type=float, default=1e-8)
    add("--updates-per-step", type=_share, default=_share("1/3"), help="gradient steps per env step, such as 1/4")
    add("--target-interval", type=int, default=1_500, help="env steps between target updates")
    add("--gamma", type=float, default=0.99)
    add("--buffer-size", type=int, default=100_000)
    add("--learning-starts", type=int, default=10_000)
    add("--exploration-steps", type=int, default=75_000, help="env steps over which epsilon falls")
    add("--final-epsilon", type=float, default=0.02)
    add("--precision", default="bf16", choices=("fp32", "bf16"))
    add("--torch-compile", action="store_true")
    add("--channels", type=int, nargs=3, default=[32, 64, 64])
    add("--kernels", type=int, nargs=3, default=[8, 4, 3])
    add("--strides", type=int, nargs=3, default=[4, 2, 1])
    add("--image-size", type=int, default=84, help="height and width of a frame")
    add("--features", type=int, default=512, help="units of the layer after the convolutions")
    add("--device", default="cpu")
    add("--threads", type=int, help="of torch; none: its default")
    add("--eval-every", type=int, default=0, help="env steps between greedy evaluations; 0: only at the end")
    add("--eval-episodes", type=int, default=20)
    add("--every", type=int, default=2_000, help="env steps between lines")
    add("--csv", type=Path, help="file of the curve; none: runs/pong/ALGO_PRECISION_seedSEED.csv")
    add("--save", type=Path, help="also save the model to a zip")
    return parser.parse_args(arguments)


def _share(text: str) -> Fraction:
    share = Fraction(text).limit_denominator(1000)
    if share <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; give a number above 0, such as 0.25 or 1/3")
    return share


def main(arguments: Sequence[str] | None = None) -> None:
    began = time.perf_counter()
    options = parse(arguments)
    import torch

    from sb_dqn import make_atari_env

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    cls = algorithm(options.algo)
    path = options.csv or Path("runs/pong") / f"{cls.__name__}_{options.precision}_seed{options.seed}.csv"
    keywords = settings(options)
    print(f"{cls.__name__} on {options.env}, {options.lanes} lanes, into {path}\n{keywords}", flush=True)
    size = {"img_height": options.image_size, "img_width": options.image_size}
    make = functools.partial(make_atari_env, options.env, protocol=options.protocol, env_kwargs=size)
    model = cls("CnnPolicy", make(options.lanes), **keywords)
    curve = Curve(
        path,
        options.every,
        make(min(options.eval_episodes, 8)),
        options.eval_every,
        options.eval_episodes,
        options.stop_at,
        options.stop_at_greedy,
        None if options.minutes is None else 60 * options.minutes,
        verbose=1,
    )
    try:
        model.learn(options.steps, callback=curve)
    except KeyboardInterrupt:
        print("interrupted; evaluating what there is", flush=True)
    seconds, mean_return = curve.seconds, curve.mean_return
    greedy = curve.finish()
    if options.save is not None:
        model.save(options.save)
    mean, sd = mean_sd(greedy)
    print(
        f"{model.num_timesteps:,} env steps, {model._n_updates:,} updates, {seconds / 60:.1f} minutes of training "
        f"({(time.perf_counter() - began) / 60:.1f} in all); last {len(curve.returns)} training episodes "
        f"{mean_return:.2f}; {len(greedy)} greedy episodes {mean:.2f} ± {sd:.2f}"
    )


if __name__ == "__main__":
    main()
