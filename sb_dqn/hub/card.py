"""Model card: the README.md of a repository, with the metadata that the Hugging Face hub reads."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from statistics import pstdev

from sb_dqn.checkpoint.encoding.state_tree import TAG
from sb_dqn.files import yaml_line
from sb_dqn.remotes.files import CONFIG, CURVE, FILM, WEIGHTS
from sb_dqn.runs.folder import Result, versions
from sb_dqn.types import Kwargs, Settings

HOME = "https://github.com/sb-dqn/sb_dqn"


@dataclass(frozen=True)
class CardContent:
    """Content of a model card."""

    repo: str
    """Repository id, or a path `./name`."""
    algorithm: str
    env_id: str | None
    result: Result
    """Env steps and time of training (0 if unknown), and returns of greedy episodes."""
    settings: Settings = field(default_factory=dict)
    """Plain data."""
    files: Collection[str] = ()
    """Names of the other files of the repository."""


def metadata(content: CardContent) -> Kwargs:
    """Returns the metadata of the card; `mean_reward` has the form of huggingface_sb3, so leaderboards read it."""
    env = [content.env_id] if content.env_id else []
    tags = [*env, content.algorithm, "deep-reinforcement-learning", "reinforcement-learning", "sb_dqn"]
    found: Kwargs = {"library_name": "sb_dqn", "pipeline_tag": "reinforcement-learning", "tags": tags}
    if not content.result.returns or content.env_id is None:
        return found
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    value = f"{content.result.mean:.2f} +/- {pstdev(content.result.returns):.2f}"
    metric = {"type": "mean_reward", "value": value, "name": "mean_reward", "verified": False}
    dataset = {"name": content.env_id, "type": content.env_id}
    result = {"task": task, "dataset": dataset, "metrics": [metric]}
    return found | {"model-index": [{"name": content.algorithm, "results": [result]}]}


def write_card(content: CardContent) -> str:
    """Returns the text of the card."""
    import yaml

    head = yaml.safe_dump(metadata(content), sort_keys=False, allow_unicode=True, width=1000)
    title = f"{content.algorithm} on {content.env_id}" if content.env_id else content.algorithm
    settings = "\n".join(f"{name}: {_on_one_line(value)}" for name, value in content.settings.items())
    used = "\n".join(f"{name}: {version}" for name, version in versions().items())
    parts = [
        f"---\n{head}---\n\n# {title}",
        f"A {content.algorithm} agent, trained with [sb_dqn]({HOME}).",
        _results(content),
        *([f"[Film of an episode]({FILM})"] if FILM in content.files else []),
        *([f"![Learning curve]({CURVE})"] if CURVE in content.files else []),
        _usage(content),
        f"## Settings\n\n{_fenced('yaml', settings)}\n\nPushed with:\n\n{_fenced('yaml', used)}",
        *([f"All settings, versions and the command of the run: [{CONFIG}]({CONFIG})."] if CONFIG in content.files else []),
        f"The parameters of the policy are in [{WEIGHTS}]({WEIGHTS}), too.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _results(content: CardContent) -> str:
    rows, result, returns = [], content.result, content.result.returns
    if returns:
        count = f"{len(returns)} greedy episode{'s' if len(returns) > 1 else ''}"
        if missing := result.unfinished_episodes:
            count = (
                f"the {len(returns)} of {len(returns) + missing} greedy episodes that finished within the step limit"
            )
        rows.append(f"| Mean return | {result.mean:.2f} ± {pstdev(returns):.2f} over {count} |")
        rows.append(f"| Lowest and highest | {min(returns):.2f}, {max(returns):.2f} |")
    rows.append(f"| Env steps of training | {result.steps:,} |")
    if result.seconds:
        rows.append(f"| Training time | {result.seconds:,.0f} s |")
    return "\n".join(["| | |", "|---|---|", *rows])


def _on_one_line(value: object) -> str:
    """Returns plain data as YAML, and an encoded object of a model file as a call."""
    if isinstance(value, Mapping) and value.get(TAG) == "object":
        fields = ", ".join(f"{name}={_on_one_line(each)}" for name, each in value["fields"].items())
        return f"{value['name']}({fields})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_on_one_line(each)}' for name, each in value.items())}}}"
    return yaml_line(value)


def _fenced(language: str, text: str) -> str:
    """Returns a block of code with a fence longer than any in the text, which so cannot end the block."""
    fence = "`" * (max([2, *map(len, re.findall("`+", text))]) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _usage(content: CardContent) -> str:
    folder = f"runs/{content.repo.rpartition('/')[2]}"
    env = "" if CONFIG in content.files or not content.env_id else f" --env {content.env_id}"
    commands = f"""pip install "sb_dqn[hub]"
sb-dqn pull {shlex.quote(content.repo)}
sb-dqn evaluate {shlex.quote(folder)}{env}"""
    code = f"""from sb_dqn import {content.algorithm}

model = {content.algorithm}.from_pretrained({json.dumps(content.repo)})"""
    return f"## Usage\n\n{_fenced('bash', commands)}\n\n{_fenced('python', code)}"
