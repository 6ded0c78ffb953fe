"""The folder of a comparison: what is compared there, and what may be added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

COMPARISON = "comparison.yaml"


@dataclass(frozen=True)
class Setup:
    """All that decides a comparison but its algorithms and seeds, which may be added to later."""

    env_id: str
    steps: int
    env_settings: tuple[str, ...] = ()
    n_envs: int | None = None
    eval_freq: int | None = None
    eval_episodes: int = 5
    final_episodes: int = 20
    final_steps: int | None = None

    def command(self, algorithm: str, settings: Iterable[str], seed: int, home: Path, device: str) -> tuple[str, ...]:
        """The `sb-dqn train ...` of one run."""
        words = ["train", algorithm, self.env_id, "--timesteps", str(self.steps), "--seed", str(seed)]
        words += ["--folder", str(home), "--device", device, "--no-progress"]
        words += ["--eval-episodes", str(self.eval_episodes), "--final-episodes", str(self.final_episodes)]
        for option in ("n_envs", "eval_freq", "final_steps"):
            value = getattr(self, option)
            words += [] if value is None else [f"--{option.replace('_', '-')}", str(value)]
        words += [word for text in settings for word in ("--set", text)]
        words += [word for text in self.env_settings for word in ("--env-set", text)]
        return tuple(words)


def refuse_run(out: Path) -> None:
    """No comparison is begun in the folder of a single run.

    Raises:
        click.UsageError: `out` is one.
    """
    from sb_dqn.cli.runs import CONFIG, MODEL

    if (out / CONFIG).is_file() or (out / MODEL).is_file():
        raise click.UsageError(
            f"{out} is the folder of a single run, in which a comparison would mix with it; name another folder with --out"
        )


def enter(out: Path, setup: Setup, settings: Mapping[str, list[str]], seeds: int) -> None:
    """Write down what `out` holds, with what it held before.

    Raises:
        click.UsageError: it holds a comparison of another kind.
    """
    import yaml

    before = read(out)
    asked = {**_plain(setup), **settings}
    known = (
        {**_plain(Setup(**before["setup"])), **before["algorithms"]} if before else {}
    )  # a folder of earlier versions
    for name, value in known.items():
        if name in asked and asked[name] != value:
            same = f"say --{name.replace('_', '-')} {value} to add to it, or " if isinstance(value, int) else ""
            raise click.UsageError(
                f"{out} holds a comparison with {name}={value!r}, not {asked[name]!r}; runs of both cannot be compared: "
                f"{same}name another folder with --out"
            )
    algorithms = {**(before["algorithms"] if before else {}), **settings}
    content = {
        "setup": _plain(setup),
        "algorithms": algorithms,
        "seeds": {
            name: max(seeds if name in settings else 0, before["seeds"].get(name, 0) if before else 0)
            for name in algorithms
        },
    }
    unfinished = out / f"{COMPARISON}.new"
    unfinished.write_text(yaml.safe_dump(content, sort_keys=False, default_flow_style=None), encoding="utf-8")
    unfinished.replace(out / COMPARISON)


def _plain(setup: Setup) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(setup).items()}


def read(out: Path) -> dict[str, Any]:
    """What `enter` wrote, `seeds` by algorithm; empty where there is none."""
    import yaml

    path = out / COMPARISON
    content = dict(yaml.safe_load(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    if isinstance(content.get("seeds"), int):  # one number for all, as it was once written
        content["seeds"] = dict.fromkeys(content["algorithms"], content["seeds"])
    return content
