"""Suites of benchmarks, from the YAML files in `presets/suites`, and their runs: one job per algorithm, environment and seed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import pstdev
from typing import Any, cast

from sb_dqn.algorithms.registry import NAMES
from sb_dqn.cli.benchmark.peer import find_peer_preset
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.files import csv_text, plain_data, write_text
from sb_dqn.presets import catalogue, find_preset
from sb_dqn.presets.literals import load_yaml_file
from sb_dqn.runs.comparison import Setup
from sb_dqn.runs.jobs import Job
from sb_dqn.runs.plan import make_plan
from sb_dqn.runs.run import SAME_AGENT, Run, numbered_folders
from sb_dqn.runs.settings_syntax import algorithm_class, constructor_defaults
from sb_dqn.types import Kwargs, Settings

FOLDER = Path(catalogue.__file__).parent / "suites"
FIRST_SEED = 100
"""Lowest seed of published results; settings are tuned on the seeds below it."""
RESULTS = "results.csv"
CURVES = "curves.csv"
OWN = "sb_dqn"
"""Name of this library in the column `library`."""
Queue = Mapping[str, Mapping[str, Sequence[int]]]
"""Seeds to train, of each agent on each task."""


@dataclass(frozen=True)
class Task:
    """An environment of a suite, with the algorithms that are trained on it and how they are evaluated."""

    name: str
    """Name in tables and folders; the id of the environment unless the same one is in the suite twice."""
    env: str
    algorithms: Sequence[str]
    peers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Name of a peer to its algorithms, of which those with settings for `env` are trained."""
    timesteps: int | None = None
    """Env steps over all lanes; None: those of each preset."""
    env_kwargs: Settings = field(default_factory=dict)
    """Keywords of the environment, over those of the preset."""
    settings: Settings = field(default_factory=dict)
    """Keywords of the algorithms, over those of their presets."""
    preset: str | None = None
    """Name of the preset; None: the one for `env`."""
    twins: Mapping[str, str] = field(default_factory=dict)
    """Algorithms that are not trained, since their presets make the agent of another one, to that one."""
    eval_episodes: int = 5
    """Greedy episodes of each of the ten evaluations during training."""
    final_episodes: int = 20
    """Greedy episodes after training, whose mean return is the score."""
    final_steps: int | None = None
    """Maximum env steps of the final episodes, as for `sb-dqn train`."""
    reference: Sequence[float] = ()
    """Scores of a random agent and of a very good one, which normalized scores map to 0 and 1; empty: not part of them."""
    protocol: str = ""
    """What else a reader must know to compare a score."""


@dataclass(frozen=True)
class Suite:
    """Environments with a common protocol."""

    name: str
    title: str
    protocol: str
    tasks: Sequence[Task]


def suite_names() -> list[str]:
    """Returns the names of all suites."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read_suite(name: str) -> Suite:
    """Reads a suite.

    Raises:
        ConfigurationError: there is no suite of this name.
    """
    if name not in suite_names():
        raise ConfigurationError(
            f"SUITE must be one of {', '.join(suite_names())}, got {name!r}. Use one of them.{nearest(name, suite_names())}"
        )
    content = load_yaml_file(FOLDER / f"{name}.yaml", "suite")
    shared = {key: value for key, value in content.items() if key not in {"title", "protocol", "tasks"}}
    tasks = [_task(task, {"env": task, **shared, **own}) for task, own in content["tasks"].items()]
    return Suite(name, content["title"], content["protocol"].strip(), tasks)


def _task(name: str, values: Kwargs) -> Task:
    if values["algorithms"] == "all":
        agents = _agents(values["env"], values.get("preset"))
        values["algorithms"] = [algorithm for algorithm, twin in agents.items() if twin == algorithm]
        values["twins"] = {algorithm: twin for algorithm, twin in agents.items() if twin != algorithm}
    return Task(name, **values)


def _agents(env_id: str, preset: str | None) -> dict[str, str]:
    """Returns the algorithms with a preset for an environment, each with the most basic class whose preset makes the same agent."""
    presets = (name for name in NAMES if find_preset(name, env_id, preset))
    plans = {name: make_plan(name, env_id, preset=preset, seed=0) for name in presets}
    agents = {name: (plan.agent, plan.n_timesteps) for name, plan in plans.items()}

    def depth(name: str) -> int:
        return len(algorithm_class(name).__mro__)

    return {name: min((other for other in agents if agents[other] == agents[name]), key=depth) for name in agents}


@dataclass(frozen=True)
class Entry(Job):
    """One run of a benchmark; a run with settings that the presets no longer have is none of it, and stays where it is."""

    library: str
    algorithm: str
    task: Task
    seed: int
    expected: Settings
    """What `config.yaml` of the run must say: env steps, lanes, keywords of the environment, and the settings of the preset."""

    @property
    def run(self) -> Run | None:
        """Newest run with the present settings, or None."""
        runs = [run for folder in numbered_folders(self.home) if self._is_current(run := _run(folder))]
        return runs[-1] if runs else None

    def _is_current(self, run: Run) -> bool:
        """Returns whether a run has the expected settings, and the defaults of its class for all other keywords."""
        expected = self.expected["settings"]
        defaults = _defaults(self.algorithm) if self.library == OWN else {}
        others = {name: value for name, value in defaults.items() if name in run.settings and name not in SAME_AGENT}
        return all(run.settings.get(name) == value for name, value in {**others, **expected}.items()) and all(
            run.config.get(name) == value for name, value in self.expected.items() if name != "settings"
        )

    def row(self) -> Kwargs:
        """Returns the line of a finished run in `results.csv`."""
        run, result = self.run, self.result
        assert run is not None
        (_, curve), versions, machine = run.evaluations, run.config["versions"], run.config.get("machine", {})
        return {
            "library": self.library,
            "algorithm": self.algorithm,
            "env": self.task.name,
            "seed": self.seed,
            "score": "" if result.mean is None else round(result.mean, 3),
            "score_sd": round(pstdev(result.returns), 3) if result.returns else "",
            "episodes": len(result.returns),
            "best": round(float(curve.max()), 3) if len(curve) else "",
            "steps": result.steps,
            "seconds": round(result.seconds, 1),
            "cpu_seconds": round(result.cpu_seconds, 1),
            "version": versions[self.library],
            "torch": versions["torch"],
            "machine": f"{machine.get('gpu') or machine.get('cpu')}, {machine.get('threads')} of {machine.get('cores')} cores",
            "commit": run.config.get("commit", ""),
            "command": f"sb-dqn {' '.join(self.published_command)}",
        }

    @property
    def published_command(self) -> list[str]:
        """Returns the words of the command without those that name a place on this machine."""
        words = [*self.train]
        at = words.index("--folder")
        return [word for word in words[:at] + words[at + 2 :] if word != "--no-progress"]

    def curve(self) -> str:
        """Returns the evaluations during training as `steps:mean return`, separated by blanks."""
        assert self.run is not None
        return " ".join(f"{step:.0f}:{mean:.5g}" for step, mean in zip(*self.run.evaluations, strict=True))


def make_entries(suite: Suite, out: Path, queue: Queue) -> list[Entry]:
    """Returns the runs of a suite, one seed after the other, so that all cells of the tables fill at the same pace."""
    return [
        _entry(out, agent, task, seed)
        for seed in sorted({seed for agents in queue.values() for seeds in agents.values() for seed in seeds})
        for task in suite.tasks
        for agent in agents_of(task)
        if seed in queue.get(task.name, {}).get(agent, ())
    ]


def agents_of(task: Task) -> list[str]:
    """Returns the algorithms of a task, and those of peers as "sb3 DQN"."""
    return [*task.algorithms] + [
        f"{library} {name}"
        for library, names in task.peers.items()
        for name in names
        if find_peer_preset(library, name, task.env)
    ]


def _entry(out: Path, agent: str, task: Task, seed: int) -> Entry:
    library, _, algorithm = agent.rpartition(" ")
    words = tuple(f"{key}={value}" for key, value in task.env_kwargs.items())
    assigned = tuple(f"{key}={json.dumps(value)}" for key, value in task.settings.items())
    plan: Any = find_peer_preset(library, algorithm, task.env, assigned) if library else None
    plan = plan or make_plan(
        algorithm, task.env, preset=task.preset, seed=seed, assignments=assigned, env_assignments=words
    )
    facts = {name: plain_data(getattr(plan, name)) for name in ("n_envs", "env_kwargs", "settings")}
    facts["n_timesteps"] = steps = task.timesteps or plan.n_timesteps
    facts["settings"]["seed"] = seed
    home = out / "runs" / f"{_slug(agent)}_{_slug(task.name)}_{seed}"
    evaluation = {name: getattr(task, name) for name in ("eval_episodes", "final_episodes")}
    setup = Setup(task.env, steps, words, final_steps=None if library else task.final_steps, **evaluation)
    command = setup.command(algorithm, assigned, seed, home, "auto")
    if library:  # without the options of `train` that `peer` does not have
        at = command.index("--device")
        command = ("peer", library, *command[1:at], *command[at + 3 :])
    elif task.preset is not None:
        command = (*command, "--preset", task.preset)
    return Entry(f"{agent} on {task.name}, seed {seed}", home, command, library or OWN, algorithm, task, seed, facts)


def _slug(name: str) -> str:
    """Returns a name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name)


@cache
def _defaults(algorithm: str) -> Settings:
    """Returns the defaults of the keywords of a class, as `config.yaml` has them."""
    return cast(Settings, plain_data(constructor_defaults(algorithm_class(algorithm))))


@cache
def _run(folder: Path) -> Run:
    """Returns the run in a folder, whose configuration is read once."""
    return Run(folder)


def seconds_left(entries: Iterable[Entry], jobs: int) -> float | None:
    """Returns an estimate of the time until all runs are finished; None before the first one has finished a part.

    The speed of a run is that of the same algorithm on the same environment, else of the algorithm, else of all runs.
    """
    todo, spent = list[Entry](), dict[tuple[str, ...], list[tuple[float, int]]]()
    for entry in entries:
        result = entry.result
        for group in _groups(entry):
            spent.setdefault(group, []).append((result.seconds, result.steps))
        if not entry.finished:
            todo.append(entry)
    total = 0.0
    for entry in todo:
        for group in _groups(entry):
            seconds, steps = (sum(column) for column in zip(*spent[group], strict=True))
            if steps:
                total += max(entry.expected["n_timesteps"] - entry.result.steps, 0) * seconds / steps
                break
        else:
            return None
    return total / jobs


def _groups(entry: Entry) -> list[tuple[str, ...]]:
    """Returns the groups of runs that are as fast as this one, the most similar first."""
    own = (entry.library, entry.algorithm)
    return [(*own, entry.task.name), own, ()]


def write_results(out: Path, entries: Iterable[Entry]) -> None:
    """Writes `results.csv` and `curves.csv` of the finished runs atomically."""
    finished = [entry for entry in entries if entry.finished]
    if not finished:
        return
    rows = [entry.row() for entry in finished]
    write_text(out / RESULTS, as_csv(rows))
    names = ("library", "algorithm", "env", "seed")
    curves = [
        {**{name: row[name] for name in names}, "curve": entry.curve()}
        for row, entry in zip(rows, finished, strict=True)
    ]
    write_text(out / CURVES, as_csv(curves))


def as_csv(rows: Sequence[Kwargs]) -> str:
    """Returns rows with the same keys as the text of a CSV file."""
    return csv_text([rows[0].keys(), *(row.values() for row in rows)])
