"""Text of the pages of suites, and of the sections on them in other pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sb_dqn.cli.benchmark.runs import FIRST_SEED, OWN, Suite, agents_of
from sb_dqn.runs.statistics import aggregate_iqm, probability_of_improvement
from scripts.benchmarks.publishing import paths
from scripts.benchmarks.publishing.cells import PEERS, SEEDS, Cell, normalized, read

SOURCES = {
    "RL Baselines3 Zoo": "[RL Baselines3 Zoo](https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md): one agent each, "
    "± the spread of its episodes; LunarLander is v2.",
    "XuanCe": "[XuanCe](https://github.com/agi-brain/xuance-benchmarks) 1.3.3: mean ± standard deviation of five seeds.",
}
"""Who published scores, and what they are."""
DIGITS = "{:.2f}".format
"""Text of a normalized score or a probability."""


def section(suite: Suite, algorithm: str, cells: Sequence[Cell], name: str) -> str:
    """Returns the section on a suite in the page of an algorithm."""
    peers = {(cell.task, cell.library): cell for cell in cells if cell.library != OWN}
    libraries = sorted({library for _, library in peers})
    own = [cell for cell in cells if cell.library == OWN]
    axes = (
        "over env steps, and over CPU minutes, on machines that can differ, where a peer was run"
        if peers
        else "over env steps"
    )
    others = published(suite, algorithm)
    header = ["Task", "Mean ± sd of the runs", "IQM [95 % interval]", "Best evaluation", "Env steps", "CPU s", "Seeds"]
    lines = [
        [
            cell.task + cell.note,
            cell.score,
            cell.iqm,
            cell.best,
            cell.mean("steps"),
            cell.mean("cpu_seconds"),
            seeds(cell),
        ]
        + [peer_text(peers.get((cell.task, library))) for library in libraries]
        + ([published_text(others, cell.task)] if others else [])
        for cell in own
    ]
    header += [*(PEERS[library] for library in libraries), *(["Published by others"] if others else [])]
    return (
        f"[{suite.title}](../results/{suite.name}.md): presets on seeds that they were not tuned on.\n\n"
        f"```bash\nsb-dqn benchmark {suite.name} --algos {algorithm} --seeds {seeds_option(own)}\n```\n\n"
        f"{table(header, lines)}\n\n"
        f"Evaluations during training, {axes}:\n\n![{suite.title}: curves of {algorithm}](../pictures/{name})"
    )


def beside_peers(suite: Suite, cells: Sequence[Cell]) -> list[str]:
    """Returns the section on a suite in the README, the scores of the agents that have a peer; nothing if none has runs."""
    found = {(cell.agent, cell.task): cell for cell in cells if cell.rows}
    theirs = {task.name: [name.rpartition(" ") for name in agents_of(task) if " " in name] for task in suite.tasks}
    algorithms = dict.fromkeys((library, name) for each in theirs.values() for library, _, name in each)
    agents = [
        agent for library, name in algorithms for agent in (name.removeprefix("Recurrent"), f"{PEERS[library]} {name}")
    ]
    tasks = [task for task, peers in theirs.items() if peers and any((agent, task) in found for agent in agents)]
    if not tasks:
        return []

    def text(agent: str, task: str) -> str:
        cell = found.get((agent, task))
        return "" if cell is None else cell.score + (f" ({len(cell.rows)})" if len(cell.rows) != SEEDS else "")

    lines = [[agent, *(text(agent, task) for task in tasks)] for agent in agents]
    return [
        table(
            [f"[{suite.title}](docs/pages/results/{suite.name}.md)", *tasks], [line for line in lines if any(line[1:])]
        ),
    ]


def peer_text(cell: Cell | None) -> str:
    """Returns the score of a peer, with what it took."""
    if cell is None:
        return ""
    runs = "" if len(cell.rows) == SEEDS else f", {len(cell.rows)} of {SEEDS} seeds"
    return f"{cell.score} ({cell.mean('steps')} env steps, {cell.mean('cpu_seconds')} CPU s{runs})"


def suite_page(suite: Suite, cells: Sequence[Cell], pictured: bool) -> str:
    """Returns the page of a suite."""
    parts = [
        f"# {suite.title}",
        f"Written by `scripts/benchmarks/publish.py` from `docs/benchmarks/{suite.name}.csv`, which has a row for each run.",
        f"```bash\nsb-dqn benchmark {suite.name} --seeds 5{' --peers sb3' if any(c.library != OWN for c in cells) else ''}\n```",
        f"Protocol: {suite.protocol} IQM is the interquartile mean over the seeds with a 95 % bootstrap interval. Seconds are those "
        f"of one run, on a machine with other work; CPU seconds are those of its process. Machines differ in "
        f"speed, and a row can have runs of several; for speeds see [How it is fast](../how-it-is-fast.md).",
        origin(cells),
    ]
    if lines := aggregates(suite, cells):
        header = [
            "Agent",
            "Tasks",
            "Seeds",
            "IQM of normalized scores [95 % interval]",
            "Better than the peer's [95 % interval]",
        ]
        scales = ", ".join(
            f"{task.name} {task.reference[0]:g} to {task.reference[1]:g}" for task in suite.tasks if task.reference
        )
        note = f"Scores are normalized to 0 and 1 at: {scales}."
        if any(line[-1] for line in lines):
            note += " The last column is the probability that a run is better than one of the peer's algorithm of the same name."
        else:
            header, lines = header[:-1], [line[:-1] for line in lines]
        parts += ["## All tasks", note, table(header, lines)]
    if pictured:
        parts.append(f"![Fraction of the runs above each normalized score](../pictures/results-{suite.name}.svg)")
    for task in suite.tasks:
        if of_task := [cell for cell in cells if cell.task == task.name]:
            header = [
                "Agent",
                "Mean ± sd",
                "IQM [95 % interval]",
                "Best evaluation",
                "Env steps",
                "Seconds",
                "CPU s",
                "Seeds",
            ]
            columns = ("steps", "seconds", "cpu_seconds")
            lines = [[c.agent + c.note, c.score, c.iqm, c.best, *map(c.mean, columns), seeds(c)] for c in of_task]
            parts += [f"## {task.name}", *([task.protocol] if task.protocol else []), table(header, lines)]
    parts += [*published_section(suite), *missing(suite, cells)]
    return "\n\n".join(parts) + "\n"


def missing(suite: Suite, cells: Sequence[Cell]) -> list[str]:
    """Returns a section on the runs of a suite that are not in the data; nothing if all are."""
    found = {(cell.library, cell.algorithm, cell.task): cell for cell in cells}
    lines = []
    for task in suite.tasks:
        pairs = [name.rpartition(" ")[::2] for name in agents_of(task)]
        keys = [(library or OWN, algorithm, task.name) for library, algorithm in pairs]
        agents = [found.get(key, Cell(*key, [], [])) for key in keys]
        left = [
            cell.agent + (f" ({len(cell.rows)} of {SEEDS})" if cell.rows else "")
            for cell in agents
            if len(cell.rows) < SEEDS
        ]
        if left:
            lines.append(f"- {task.name}: {', '.join(left)}")
    return ["## Not run yet", f"Agents of the suite without {SEEDS} seeds:", "\n".join(lines)] if lines else []


def compares_settings(suite: Suite) -> bool:
    """Returns True if each task has one agent, whose settings differ from task to task: "TASK" or "TASK, SETTINGS"."""
    return all(len(task.algorithms) == 1 and not task.peers for task in suite.tasks)


def settings_page(suite: Suite, cells: Sequence[Cell]) -> str:
    """Returns the page of a suite that compares settings: one table."""
    references = {task.name: task.reference for task in suite.tasks}
    header = ["Task, settings", "Mean ± sd", "IQM [95 % interval]", "Mean of the curve", "Env steps", "CPU s", "Seeds"]
    lines = [[c.task, c.score, c.iqm, c.area, c.mean("steps"), c.mean("cpu_seconds"), seeds(c)] for c in cells]
    notes = (
        "The mean of the curve is that of all evaluations during training: the area under it, divided by the env steps."
    )
    if all(references.values()):
        header.insert(3, "Normalized IQM")
        for cell, line in zip(cells, lines, strict=True):
            low, high = references[cell.task]
            scaled = (np.array(cell.numbers("score"))[:, None] - low) / (high - low)
            line.insert(3, aggregate_iqm(scaled).text(DIGITS))
        scales = ", ".join(dict.fromkeys(f"{references[c.task][0]:g} to {references[c.task][1]:g}" for c in cells))
        notes += f" Scores are normalized to 0 and 1 at: {scales}."
    parts = [
        f"# {suite.title}",
        f"Written by `scripts/benchmarks/publish.py` from `docs/benchmarks/{suite.name}.csv`, which has a row for each run.",
        f"```bash\nsb-dqn benchmark {suite.name} --seeds 5\n```",
        f"Protocol: {suite.protocol} IQM is the interquartile mean over the seeds with a 95 % bootstrap interval. {notes}",
        origin(cells),
        table(header, lines),
        f"![Evaluations during training: {suite.title}](../pictures/results-{suite.name}.svg)",
        *missing(suite, cells),
    ]
    return "\n\n".join(parts) + "\n"


def published(suite: Suite, algorithm: str | None = None) -> list[dict[str, str]]:
    """Returns the scores that others published of a suite, or of one algorithm on it."""
    rows = [row for row in read(paths.DATA / "published.csv") if row["suite"] == suite.name]
    return [row for row in rows if algorithm in (None, row["algorithm"])]


def published_text(rows: Iterable[Mapping[str, str]], task: str) -> str:
    """Returns the scores on a task, with their sources."""
    found = [row for row in rows if row["env"] == task]
    return "; ".join(f"{row['source']} {row['score']} ({int(row['steps']):,} env steps)" for row in found)


def published_section(suite: Suite) -> list[str]:
    """Returns a section on the scores that others published of a suite; nothing if there are none."""
    rows = published(suite)
    tasks = [task.name for task in suite.tasks if any(row["env"] == task.name for row in rows)]
    agents = dict.fromkeys((row["source"], row["algorithm"]) for row in rows)
    scores = {(row["source"], row["algorithm"], row["env"]): f"{row['score']} ({int(row['steps']):,})" for row in rows}
    lines = [[source, agent, *(scores.get((source, agent, task), "") for task in tasks)] for source, agent in agents]
    notes = " ".join(text for source, text in SOURCES.items() if any(source == row["source"] for row in rows))
    header = ["Source", "Agent", *tasks]
    return ["## Published by others", f"{notes} Env steps in parentheses.", table(header, lines)] if rows else []


def origin(cells: Iterable[Cell]) -> str:
    """Returns machines, versions and commits of all runs."""
    rows = [row for cell in cells for row in cell.rows]
    versions = sorted({f"{PEERS.get(row['library'], row['library'])} {row['version']}" for row in rows})
    facts = {
        "Machines": sorted({row["machine"] for row in rows}),
        "Versions": [*versions, *sorted({f"torch {row['torch']}" for row in rows})],
        "Commits": sorted({f"`{row['commit']}`" for row in rows if row["commit"]}),
    }
    return " ".join(f"{name}: {'; '.join(values)}." for name, values in facts.items() if values)


def seeds(cell: Cell) -> str:
    numbers = sorted(int(row["seed"]) for row in cell.rows)
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{numbers[0]} to {numbers[-1]}" if whole and len(numbers) > 2 else ", ".join(map(str, numbers))


def seeds_option(cells: Sequence[Cell]) -> str:
    """Returns the value of `--seeds` for all seeds of some cells: their number if they are the first ones."""
    numbers = sorted({int(row["seed"]) for cell in cells for row in cell.rows})
    first = numbers == list(range(FIRST_SEED, FIRST_SEED + len(numbers)))
    return str(len(numbers)) if first else " ".join(map(str, numbers))


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |".replace("| --- ", "|---").replace("--- |", "---|") for row in rows)


def aggregates(suite: Suite, cells: Sequence[Cell]) -> list[list[str]]:
    """Returns the lines of the table over all tasks, the best agent first."""
    scores = normalized(suite, cells)
    lines = []
    for (library, algorithm), points in scores.items():
        peer = next((scores[other, algorithm] for other in PEERS if (other, algorithm) in scores), None)
        better = probability_of_improvement(points, peer) if library == OWN and peer is not None else None
        label = Cell(library, algorithm, "", (), ()).agent
        estimate = aggregate_iqm(points)
        shape = [str(size) for size in reversed(points.shape)]
        lines.append((estimate.value, [label, *shape, estimate.text(DIGITS), better.text(DIGITS) if better else ""]))
    return [line for _, line in sorted(lines, key=lambda pair: -pair[0])]
