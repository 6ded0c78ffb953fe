"""Normalization of returns, so that environments with different scales can be averaged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sb_dqn.errors import ConfigurationError
from sb_dqn.files import read_yaml
from sb_dqn.plotting.curve import Points

CHOICES = ("human", "minmax", "none")
ATARI_ID = re.compile(r"(?:ALE/)?([A-Za-z]+?)(?:NoFrameskip|Deterministic)?-v\d+")
"""Ids of Atari games: `ALE/Pong-v5`, `PongNoFrameskip-v4`, `Pong-v5` of EnvPool; MinAtar's have a prefix of their own."""


@dataclass(frozen=True)
class Normalization:
    """Linear map of the returns of each environment: 0 for the low reference value, 1 for the high one."""

    label: str
    """Name of the scores, for axes."""
    ranges: Mapping[str, tuple[float, float]]
    """Low and high reference value by environment id; empty for raw returns."""

    def apply(self, env_id: str, returns: Points) -> Points:
        """Returns `(returns - low) / (high - low)` with the reference values of the environment."""
        if not self.ranges:
            return returns
        low, high = self.ranges[env_id]
        scaled: Points = (returns - low) / (high - low)
        return scaled


def human_scores() -> dict[str, tuple[float, float]]:
    """Returns the scores of a random agent and of a human on 57 Atari games, such as `Pong: (-20.7, 14.6)`."""
    scores = read_yaml(Path(__file__).with_name("human_scores.yaml"))
    return {game: (float(low), float(high)) for game, (low, high) in scores.items()}


def make_normalization(choice: str | None, returns: Mapping[str, Points]) -> Normalization:
    """Returns the normalization of a choice.

    Args:
        choice: "human", "minmax", "none" or the path of a YAML file; None takes raw returns for one environment, human
            scores if all environments are Atari games, and else "minmax".
        returns: all mean returns of all runs, by environment id.

    Raises:
        ConfigurationError: an unknown choice, a file without an environment, or an environment without a range.
    """
    env_ids = list(returns)
    games = {env_id: match[1] for env_id in env_ids if (match := ATARI_ID.fullmatch(env_id))}
    ranges = {env_id: scores for env_id, game in games.items() if (scores := human_scores().get(game))}
    if choice is None:
        choice = "none" if len(env_ids) == 1 else "human" if len(ranges) == len(env_ids) else "minmax"
    if choice == "none":
        if len(env_ids) > 1:
            raise ConfigurationError(
                f"--normalize none must be used with one environment, got {', '.join(env_ids)}, whose returns differ in scale. Use "
                f"--normalize minmax, or plot one environment at a time."
            )
        return Normalization("return", {})
    if choice == "human":
        _require(env_ids, ranges, "--normalize human")
        return Normalization("human-normalized score", ranges)
    if choice == "minmax":
        return Normalization(
            "min-max normalized score", {env_id: _range(env_id, returns[env_id]) for env_id in env_ids}
        )
    ranges = _read_ranges(Path(choice))
    _require(env_ids, ranges, choice)
    return Normalization("normalized score", ranges)


def check_choice(choice: str | None) -> None:
    """Checks the name of a normalization, or the file with ranges.

    Raises:
        ConfigurationError: it is neither a name nor a file with a range for each environment that it names.
    """
    if choice is not None and choice not in CHOICES:
        _read_ranges(Path(choice))


def _require(env_ids: Iterable[str], ranges: Mapping[str, tuple[float, float]], source: str) -> None:
    """Checks that the source has a range for each environment."""
    lacking = [env_id for env_id in env_ids if env_id not in ranges]
    if lacking:
        raise ConfigurationError(
            f"{source} must have scores of each environment, got none of {', '.join(lacking)}. Use --normalize minmax, or "
            f"--normalize FILE with lines such as `{lacking[0]}: [0, 100]`."
        )


def _range(env_id: str, returns: Points) -> tuple[float, float]:
    low, high = float(returns.min()), float(returns.max())
    if low == high:
        raise ConfigurationError(
            f"--normalize minmax must be used with returns that differ, got {low:g} from all runs on {env_id}. Use --normalize FILE."
        )
    return low, high


def _read_ranges(path: Path) -> dict[str, tuple[float, float]]:
    """Reads a YAML file with lines `ENV: [low, high]`."""
    import yaml

    if not path.is_file():
        raise ConfigurationError(
            f"--normalize must be one of {', '.join(CHOICES)} or a YAML file, got {str(path)!r}. Use one of them."
        )
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        ranges = {str(env_id): (float(low), float(high)) for env_id, (low, high) in content.items()}
        bad = [env_id for env_id, (low, high) in ranges.items() if not np.isfinite([low, high]).all() or low == high]
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(
            f"{path} must have lines `ENV: [low, high]` with numbers, got {reason}. Correct the file."
        ) from None
    if bad:
        raise ConfigurationError(
            f"the two values of a range must be finite and different, got equal or infinite ones for {', '.join(bad)} in {path}. "
            f"Correct the file."
        )
    return ranges
