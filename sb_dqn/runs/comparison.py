"""Folder of a comparison: `comparison.yaml` with its setup, algorithms and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sb_dqn.files import plain_data, read_yaml, write_yaml

if TYPE_CHECKING:
    from sb_dqn.types import Kwargs

COMPARISON = "comparison.yaml"


@dataclass(frozen=True)
class Setup:
    """Setup of a comparison without algorithms and seeds, which can be added later."""

    env_id: str
    steps: int
    env_settings: tuple[str, ...] = ()
    n_envs: int | None = None
    eval_freq: int | None = None
    eval_episodes: int = 5
    final_episodes: int = 20
    final_steps: int | None = None

    def command(self, algorithm: str, settings: Iterable[str], seed: int, home: Path, device: str) -> tuple[str, ...]:
        """Returns the arguments of `sb-dqn` that train one run, in a folder below `home`, with texts `name=value` as settings."""
        words = ["train", algorithm, self.env_id, "--timesteps", str(self.steps), "--seed", str(seed)]
        words += ["--folder", str(home), "--device", device, "--no-progress"]
        words += ["--eval-episodes", str(self.eval_episodes), "--final-episodes", str(self.final_episodes)]
        for option in ("n_envs", "eval_freq", "final_steps"):
            value = getattr(self, option)
            words += [] if value is None else [f"--{option.replace('_', '-')}", str(value)]
        words += [word for text in settings for word in ("--set", text)]
        words += [word for text in self.env_settings for word in ("--env-set", text)]
        return tuple(words)


def reject_run_folder(out: Path) -> None:
    """Rejects the folder of a single run as the folder of a comparison.

    Raises:
        click.UsageError: `out` is the folder of a run.
    """
    from sb_dqn.runs.folder import CONFIG, MODEL

    if (out / CONFIG).is_file() or (out / MODEL).is_file():
        raise click.UsageError(
            f"--out must be the folder of a comparison, got {out}, the folder of a single run. Choose another folder."
        )


def write_comparison(out: Path, setup: Setup, settings: Mapping[str, list[str]], seeds: int) -> None:
    """Writes `comparison.yaml`, merged with the algorithms and seeds that `out` already has.

    Raises:
        click.UsageError: `out` has a comparison with another setup.
    """
    stored = read_comparison(out) or {"algorithms": {}, "seeds": {}}
    requested = {**plain_data(vars(setup)), **settings}
    # `Setup` fills in the fields that earlier versions did not write.
    existing = {**plain_data(vars(Setup(**stored["setup"]))), **stored["algorithms"]} if "setup" in stored else {}
    for name, value in existing.items():
        if name in requested and requested[name] != value:
            same = f"Use --{name.replace('_', '-')} {value}, or choose" if isinstance(value, int) else "Choose"
            raise click.UsageError(
                f"{name} must be {value!r} as in the comparison in {out}, got {requested[name]!r}. {same} another folder with "
                f"--out."
            )
    algorithms = {**stored["algorithms"], **settings}
    content = {
        "setup": vars(setup),
        "algorithms": algorithms,
        "seeds": {name: max(seeds if name in settings else 0, stored["seeds"].get(name, 0)) for name in algorithms},
    }
    write_yaml(out / COMPARISON, content)


def read_comparison(out: Path) -> Kwargs:
    """Reads `comparison.yaml`; returns an empty dict if the file does not exist."""
    content = dict(read_yaml(out / COMPARISON, {}))
    if isinstance(content.get("seeds"), int):  # one number for all algorithms, as earlier versions wrote it
        content["seeds"] = dict.fromkeys(content["algorithms"], content["seeds"])
    return content
