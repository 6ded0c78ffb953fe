"""Choice of the model file that `from_pretrained` loads, of a repository or folder."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from sb_dqn.checks import check_int
from sb_dqn.errors import ConfigurationError, explained, printable
from sb_dqn.files import read_yaml
from sb_dqn.remotes.files import CONFIG, MODEL, NOT_MODELS, RESULT, check_names, check_plain, check_size, model_among
from sb_dqn.remotes.open import Remote, open_remote

SHOWN = 10
"""Number of agents that a message names."""


class Agent(NamedTuple):
    """Run with a model, among those of a repository."""

    home: str
    """Path in the repository, empty or with a slash at the end."""
    algorithm: str
    env_id: str
    score: float
    """Mean return of the greedy episodes after training; minus infinity without a result."""


def find_model(
    cls: type[Any], source: str | Path, env_id: str | None, filename: str | None, revision: str | None, token: str | None,
    max_size: int,
) -> Path:  # fmt: skip
    """Returns the path of a model file, which is downloaded if it is on the hub; see `BaseAlgorithm.from_pretrained`."""
    max_size = check_int("max_size", max_size, 1)
    remote = open_remote(Path(source) if Path(source).expanduser().is_dir() else source, revision, token)
    names = sorted(remote.names(inner=True))
    check_names(names, remote.label)
    top = [name for name in names if "/" not in name]
    alone = filename in names or any(name.endswith(".zip") and name not in NOT_MODELS for name in top)
    home = ""
    if env_id is not None or not alone:
        agents = _agents(remote, names, max_size)
        if not agents and not alone:
            model_among(top, remote.label)  # raises
        home = _select(agents, cls.__name__, env_id, remote.label).home
    inner = [name.removeprefix(home) for name in names if name.startswith(home)]
    model = home + model_among(inner, f"{remote.label}/{home}".rstrip("/"), filename)
    check_size(remote.size([model]), remote.label, max_size)
    return remote.locate(model)


def _agents(remote: Remote, names: list[str], max_size: int) -> list[Agent]:
    """Returns the runs that have a model, by their configurations and results, which are read as plain data."""
    known = set(names)
    homes = [name.removesuffix(CONFIG) for name in names if name.rpartition("/")[2] == CONFIG]
    homes = [home for home in homes if home + MODEL in known]
    read = [home + name for home in homes for name in (CONFIG, RESULT) if home + name in known]
    check_size(remote.size(read), remote.label, max_size)
    return [_agent(remote, home, home + RESULT in read) for home in homes]


def _agent(remote: Remote, home: str, finished: bool) -> Agent:
    files = [remote.locate(home + name) for name in (CONFIG, RESULT)[: 1 + finished]]
    fix = "Restore its files, or remove it."
    with explained(
        f"{remote.label}/{home}", "a run as sb-dqn writes it", fix, Exception
    ):  # YAML raises almost anything
        for file in files:
            check_plain(file)
        config, returns = read_yaml(files[0]), read_yaml(files[1])["returns"] if finished else ()
        score = fmean(returns) if returns else -math.inf
        return Agent(home, str(config["algorithm"]), str(config["env_id"]), score if score < math.inf else -math.inf)


def _select(agents: list[Agent], algorithm: str, env_id: str | None, label: str) -> Agent:
    """Returns the agent of a class on an environment with the highest score."""
    found = [each for each in agents if each.algorithm == algorithm and env_id in (None, each.env_id)]
    if len({each.env_id for each in found}) == 1:
        return max(found, key=lambda each: each.score)
    near = found or [each for each in agents if each.env_id == env_id] or agents
    calls = sorted({printable(f"{each.algorithm} on {each.env_id}") for each in near})
    more = f" and {len(calls) - SHOWN} more" if len(calls) > SHOWN else ""
    fix = "Name one (env_id=)" if found else "Call from_pretrained of its class, with its env_id"
    raise ConfigurationError(
        f"{label} must have {algorithm} on {env_id or 'one environment'}, got {', '.join(calls[:SHOWN]) or f'no {CONFIG}'}{more}. "
        f"{fix if near else 'Leave env_id out'}."
    )
