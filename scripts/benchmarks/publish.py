"""Results of `sb-dqn benchmark` as data, pages and pictures of the documentation.

`docs/benchmarks/SUITE.csv` has a row for each run, `SUITE-curves.csv` its evaluations during training. From them a page is
written for each suite, a section into the page of each algorithm and into the README, and their pictures.
`docs/benchmarks/bsuite.csv` is written by `bsuite_scores.py`; `bsuite-published.csv` has the scores that bsuite's authors published,
`published.csv` those of other libraries on the tasks of a suite.

Usage: python scripts/benchmarks/publish.py                           # writes pages and pictures
       python scripts/benchmarks/publish.py runs/benchmark_classic    # adds the runs of a benchmark to the data before
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import numpy as np
import yaml

from sb_dqn.cli.benchmark.command import QUEUE
from sb_dqn.cli.benchmark.runs import (
    CURVES,
    FIRST_SEED,
    OWN,
    RESULTS,
    Suite,
    Task,
    agents_of,
    as_csv,
    read_suite,
    suite_names,
)
from sb_dqn.files import write_text
from sb_dqn.plotting.series import Series, line_with_band
from sb_dqn.plotting.svg import Chart, draw_chart
from sb_dqn.presets import find_preset
from sb_dqn.runs.settings_syntax import algorithm_class, constructor_defaults
from sb_dqn.runs.statistics import (
    aggregate_iqm,
    at_common_places,
    iqm_curve,
    performance_profile,
    probability_of_improvement,
)

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "docs" / "benchmarks"
PAGES = ROOT / "docs" / "pages"
NAVIGATION = ROOT / "docs" / "mkdocs.yml"
PICTURES = PAGES / "pictures"
KEY = ("library", "algorithm", "env", "seed")
SEEDS = 5
"""Runs that an agent should have on a task."""
PEERS = {"sb3": "Stable-Baselines3"}
SOURCES = {
    "RL Baselines3 Zoo": "[RL Baselines3 Zoo](https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md): one agent each, "
    "± the spread of its episodes; LunarLander is v2.",
    "XuanCe": "[XuanCe](https://github.com/agi-brain/xuance-benchmarks) 1.3.3: mean ± standard deviation of five seeds.",
}
"""Who published scores, and what they are."""
BEGIN, END = "<!-- written by scripts/benchmarks/publish.py -->", "<!-- end -->"
STYLE = (
    "svg{font:11px system-ui,sans-serif;fill:#5d6068;--grid:#e9e9e5;--c0:#2563b8;--c1:#d3611c;--c2:#1f8254;--c3:#8a4bb3}"
    "@media(prefers-color-scheme:dark){svg{fill:#a0a4ac;--grid:#2a2d32;--c0:#74a9f5;--c1:#f19a5b;--c2:#63c794;--c3:#c595e8}}"
    "path{fill:none;stroke:var(--c);vector-effect:non-scaling-stroke;stroke-linejoin:round;stroke-linecap:round}"
    ".grid{stroke:var(--grid)}.line{stroke-width:2}.faint{opacity:.5}.band{fill:var(--c);stroke:none;opacity:.16}"
    ".marks{stroke-width:6}svg svg{overflow:visible}.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}"
)
WIDTH, HEIGHT, LEFT, TOP = 260, 130, 46, 26
"""Size of a panel's drawing area, and the space for its labels and its title."""


@dataclass(frozen=True)
class Cell:
    """Runs of an agent on a task of a suite, one per seed."""

    library: str
    algorithm: str
    task: str
    rows: Sequence[Mapping[str, str]]
    curves: Sequence[str]
    twin: str = ""
    """Algorithm with the same settings, whose runs these are."""

    @property
    def note(self) -> str:
        return f" (the runs of {self.twin}, which has the same settings here)" if self.twin else ""

    @property
    def agent(self) -> str:
        return self.algorithm if self.library == OWN else f"{PEERS[self.library]} {self.algorithm}"

    def numbers(self, column: str) -> list[float]:
        return [float(row[column]) for row in self.rows if row.get(column)]  # older rows lack CPU seconds

    def mean(self, column: str) -> str:
        values = self.numbers(column)
        return f"{fmean(values):,.0f}" if values and any(values) else "–"

    @property
    def best(self) -> str:
        values = self.numbers("best")
        return number(fmean(values)) if values else "–"

    @property
    def score(self) -> str:
        return spread(self.numbers("score"))

    @property
    def area(self) -> str:
        """Mean of all evaluations during training, which is the area under the curve divided by the env steps."""
        return spread([fmean(float(point.partition(":")[2]) for point in curve.split()) for curve in self.curves])

    @property
    def iqm(self) -> str:
        estimate = aggregate_iqm(np.array(self.numbers("score"))[:, None])
        interval = f" [{number(estimate.interval[0])}, {number(estimate.interval[1])}]" if estimate.interval else ""
        return f"{number(estimate.value)}{interval}"

    @property
    def minutes_per_step(self) -> float:
        """Mean CPU time of an env step, evaluations included; wall-clock time of runs without it."""
        seconds = [float(row.get("cpu_seconds") or 0.0) or float(row["seconds"]) for row in self.rows]
        return sum(seconds) / sum(self.numbers("steps")) / 60

    def series(self, color: int, label: str = "", minutes: bool = False) -> list[Series]:
        """Returns the interquartile mean of the evaluations of all runs, with its interval, over env steps or CPU minutes."""
        pairs = [np.array([point.split(":") for point in curve.split()], float).T for curve in self.curves]
        steps, values = at_common_places([(points[0], points[1]) for points in pairs])
        band = iqm_curve(values[:, np.newaxis])
        return line_with_band(steps * (self.minutes_per_step if minutes else 1.0), *band, color, label or self.agent)


def number(value: float) -> str:
    """Returns a score with as many digits as a reader needs."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """Returns mean and standard deviation."""
    return number(fmean(values)) + (f" ± {number(stdev(values))}" if len(values) > 1 else "")


def merge(out: Path) -> None:
    """Adds the runs of a benchmark to the data of its suite; a run of the same agent, task and seed is replaced."""
    suite = yaml.safe_load((out / QUEUE).read_text(encoding="utf-8"))["suite"]
    for name, target in ((RESULTS, DATA / f"{suite}.csv"), (CURVES, DATA / f"{suite}-curves.csv")):
        rows = {tuple(row[key] for key in KEY): row for path in (target, out / name) for row in read(path)}
        if tuned := [row["seed"] for row in rows.values() if int(row["seed"]) < FIRST_SEED]:
            raise SystemExit(
                f"seeds must be {FIRST_SEED} or more, got {tuned[0]} in {out / name}: presets are tuned on those below"
            )
        order = [task.name for task in read_suite(suite).tasks]
        ranked = sorted(rows.values(), key=lambda row: (order.index(row["env"]), *(row[key] for key in KEY)))
        names = dict.fromkeys(name for row in ranked for name in row)
        write_text(target, as_csv([{name: row.get(name, "") for name in names} for row in ranked]))


def read(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def published(suite: Suite, algorithm: str | None = None) -> list[dict[str, str]]:
    """Returns the scores that others published of a suite, or of one algorithm on it."""
    rows = [row for row in read(DATA / "published.csv") if row["suite"] == suite.name]
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


def cells_of(suite: Suite) -> list[Cell]:
    """Returns the cells of a suite in the order of its tasks; in each, the best agent first."""
    curves = {tuple(row[key] for key in KEY): row["curve"] for row in read(DATA / f"{suite.name}-curves.csv")}
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in read(DATA / f"{suite.name}.csv"):
        groups[row["library"], row["algorithm"], row["env"]].append(row)
    cells = [
        Cell(*group, rows, [curves[tuple(row[key] for key in KEY)] for row in rows]) for group, rows in groups.items()
    ]
    cells += [twin for task in suite.tasks for twin in twins(task, [cell for cell in cells if cell.task == task.name])]
    order = [task.name for task in suite.tasks]
    return sorted(
        cells, key=lambda cell: (order.index(cell.task), -fmean(cell.numbers("score") or [-np.inf]), cell.agent)
    )


def twins(task: Task, cells: Sequence[Cell]) -> list[Cell]:
    """Returns cells for the algorithms without runs on a task whose settings are those of an algorithm with runs."""
    own = [cell for cell in cells if cell.library == OWN and cell.rows]
    of_settings = {settings_of(task, cell.algorithm): cell for cell in own}
    left = [name for name in task.algorithms if name not in {cell.algorithm for cell in own}]
    pairs = [(name, of_settings.get(settings_of(task, name))) for name in left]
    return [replace(cell, algorithm=name, twin=cell.algorithm) for name, cell in pairs if cell]


def settings_of(task: Task, algorithm: str) -> str:
    """Returns all settings that an algorithm has on a task: those of its preset, and its defaults."""
    preset = find_preset(algorithm, task.env, task.preset)
    assert preset is not None
    settings = constructor_defaults(algorithm_class(algorithm)) | dict(preset.settings) | dict(task.settings)
    return repr((sorted(settings.items()), preset.policy, preset.n_envs, task.timesteps or preset.n_timesteps))


def outputs() -> dict[Path, str]:
    """Returns the text of each page and picture."""
    files: dict[Path, str] = {}
    sections: dict[str, list[str]] = defaultdict(list)
    glances: list[str] = []
    for suite in map(read_suite, suite_names()):
        cells = cells_of(suite)
        if not cells:
            continue
        if compares_settings(suite):
            files[PAGES / "results" / f"{suite.name}.md"] = settings_page(suite, cells)
            files[PICTURES / f"results-{suite.name}.svg"] = picture(settings_charts(cells))
            continue
        profile = profile_picture(suite, cells)
        files |= {PICTURES / f"results-{suite.name}.svg": profile} if profile else {}
        files[PAGES / "results" / f"{suite.name}.md"] = suite_page(suite, cells, bool(profile))
        glances += beside_peers(suite, cells)
        for algorithm in dict.fromkeys(cell.algorithm for cell in cells if cell.library == OWN):
            chosen = [cell for cell in cells if cell.algorithm.removeprefix("Recurrent") == algorithm]
            name = f"results-{suite.name}-{algorithm.lower()}.svg"
            files[PICTURES / name] = algorithm_picture(suite, chosen)
            sections[algorithm].append(section(suite, algorithm, chosen, name))
    if scores := read(DATA / "bsuite.csv"):
        files[PAGES / "results" / "bsuite.md"] = bsuite_page(scores, read(DATA / "bsuite-published.csv"))
        files[PICTURES / "results-bsuite.svg"] = radar(by_kind(scores))
    files[NAVIGATION] = with_pages(
        NAVIGATION.read_text(encoding="utf-8"), [path for path in files if path.suffix == ".md"]
    )
    for page, heading in algorithm_pages().items():
        files[page] = with_section(page.read_text(encoding="utf-8"), "\n\n".join(sections.get(heading, [])))
    readme = ROOT / "README.md"
    files[readme] = with_section(readme.read_text(encoding="utf-8"), "\n\n".join(glances))
    return files


def with_pages(navigation: str, pages: Iterable[Path]) -> str:
    """Returns the configuration of mkdocs with these pages of results, before the other measurements."""
    before = re.sub(r"^ +- results/.*\n", "", navigation, flags=re.MULTILINE)
    lines = "".join(f"          - results/{page.name}\n" for page in pages)
    return re.sub(r"^ +- measurements/index\.md\n", rf"\g<0>{lines}", before, flags=re.MULTILINE)


def algorithm_pages() -> dict[Path, str]:
    """Returns the page of each algorithm with the class that its heading names."""
    pages = sorted((PAGES / "algorithms").glob("*.md"))
    return {
        page: page.read_text(encoding="utf-8").split()[1]
        for page in pages
        if "\n## Results\n" in page.read_text(encoding="utf-8")
    }


def with_section(page: str, text: str) -> str:
    """Returns a page with the written section at the start of its results, or without one."""
    page = re.sub(rf"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n\n", "", page, flags=re.DOTALL)
    return page.replace("\n## Results\n\n", f"\n## Results\n\n{BEGIN}\n\n{text}\n\n{END}\n\n", 1) if text else page


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
        f"[{suite.title}](docs/pages/results/{suite.name}.md): mean return ± standard deviation of the last model over {SEEDS} seeds, "
        f"or the number in parentheses. Ours has its presets, the peer the settings of its Zoo.",
        table(["", *tasks], [line for line in lines if any(line[1:])]),
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
        parts += [
            "## All tasks",
            f"Scores are normalized to 0 and 1 at: {scales}. The last column is the probability that a run is better than one of "
            f"the peer's algorithm of the same name.",
            table(header, lines),
        ]
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
            line.insert(3, estimated(aggregate_iqm((np.array(cell.numbers("score"))[:, None] - low) / (high - low))))
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


def settings_charts(cells: Sequence[Cell]) -> list[Chart]:
    """Returns a panel for each task, with a curve for each of its settings."""
    panels: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        panels[cell.task.rpartition(", ")[0] or cell.task].append(cell)
    charts = [
        draw_chart(task, [line for color, cell in enumerate(group) for line in cell.series(color, label(cell, task))])
        for task, group in panels.items()
    ]
    return [chart for chart in charts if chart]


def label(cell: Cell, task: str) -> str:
    """Returns the settings in the name of a task."""
    return cell.task.removeprefix(task).removeprefix(", ") or "no switch"


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


def normalized(suite: Suite, cells: Sequence[Cell]) -> dict[tuple[str, str], np.ndarray]:
    """Returns the normalized scores `[R, M]` of each agent, by library and algorithm, that has runs on all tasks with references."""
    tasks = {task.name: task.reference for task in suite.tasks if task.reference}
    by_agent: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)
    for cell in cells:
        if reference := tasks.get(cell.task):
            low, high = reference
            by_agent[cell.library, cell.algorithm][cell.task] = [
                (x - low) / (high - low) for x in cell.numbers("score")
            ]
    found = {}
    for agent, scores in by_agent.items():
        runs = min(map(len, scores.values()))
        if len(scores) == len(tasks) and runs:
            found[agent] = np.array([scores[task][:runs] for task in tasks]).T
    return found


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
        lines.append((estimate.value, [label, *shape, estimated(estimate), estimated(better) if better else ""]))
    return [line for _, line in sorted(lines, key=lambda pair: -pair[0])]


def estimated(estimate: object) -> str:
    """Returns an estimate with two digits and its interval."""
    value, interval = estimate.value, estimate.interval  # type: ignore[attr-defined]
    return f"{value:.2f}" + (f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "")


def algorithm_picture(suite: Suite, cells: Sequence[Cell]) -> str:
    """Returns the curves of an algorithm, a panel for each task; next to those of a peer, a second one over CPU minutes."""
    both = any(cell.library != OWN for cell in cells)
    charts = [
        draw_task([cell for cell in cells if cell.task == task.name], minutes)
        for task in suite.tasks
        for minutes in (False, True)[: 1 + both]
    ]
    return picture([chart for chart in charts if chart], 2 if both else 3)


def draw_task(cells: Sequence[Cell], minutes: bool) -> Chart | None:
    """Returns the panel of a task: the curve of this library and those of the peers."""
    ranked = sorted(cells, key=lambda cell: cell.library != OWN)
    series = [line for color, cell in enumerate(ranked) for line in cell.series(color, minutes=minutes)]
    return draw_chart(f"{cells[0].task}, {'CPU minutes' if minutes else 'env steps'}", series) if cells else None


def profile_picture(suite: Suite, cells: Sequence[Cell]) -> str | None:
    """Returns the performance profiles of the agents that have a peer, or None if there are none."""
    scores = normalized(suite, cells)
    thresholds = np.linspace(0.0, 1.0, 51)
    shared = [algorithm for library, algorithm in scores if library != OWN and (OWN, algorithm) in scores]
    series = []
    for color, algorithm in enumerate(shared):
        for library in (OWN, *PEERS):
            if (library, algorithm) in scores:
                band = performance_profile(scores[library, algorithm], thresholds)
                label = Cell(library, algorithm, "", (), ()).agent
                series.append(Series("line", thresholds, band.value, color=color, faint=library != OWN, label=label))
    chart = draw_chart("fraction of runs above a normalized score", series, x_label="")
    return picture([chart]) if chart else None


def picture(charts: Sequence[Chart], columns: int = 3) -> str:
    """Returns an SVG file with a panel for each chart and one legend."""
    legend = list(dict.fromkeys(entry for chart in charts for entry in chart.legend))
    columns = min(len(charts), columns)
    step_x, step_y, head = WIDTH + LEFT + 14, HEIGHT + TOP + 26, 16 * -(-len(legend) // 4) + 8
    width, height = columns * step_x, head + -(-len(charts) // columns) * step_y
    marks = []
    for number, (style, text) in enumerate(legend):
        x, y = LEFT + number % 4 * (width - LEFT) / min(len(legend), 4), 12 + number // 4 * 16
        marks.append(f'<path class="{style}" d="M{x:.0f} {y - 4}h18"/><text x="{x + 24:.0f}" y="{y}">{text}</text>')
    for number, chart in enumerate(charts):
        x, y = LEFT + number % columns * step_x, head + TOP + number // columns * step_y
        size = f'<svg x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" '
        labels = [f'<text x="{x}" y="{y - 8}" font-weight="600">{chart.title}</text>']
        for tick in chart.y_ticks:
            labels.append(
                f'<text x="{x - 6}" y="{y + HEIGHT * (1 - tick.place / 100) + 4:.0f}" text-anchor="end">{tick.text}</text>'
            )
        for tick in chart.x_ticks:
            place = x + WIDTH * tick.place / 100
            labels.append(f'<text x="{place:.0f}" y="{y + HEIGHT + 16}" text-anchor="middle">{tick.text}</text>')
        marks += [str(chart.svg).replace("<svg ", size, 1), *labels]
    return svg(width, height, marks)


def bsuite_page(rows: Sequence[Mapping[str, str]], published: Sequence[Mapping[str, str]]) -> str:
    """Returns the page of the scores of bsuite: a line for each experiment, a column for each agent, published ones last."""
    experiments = {row["experiment"]: row for row in rows}
    shown = [*rows, *(row for row in published if row["experiment"] in experiments)]
    agents = list(dict.fromkeys(row["agent"] for row in shown))
    cells = {
        (row["agent"], row["experiment"]): f"{float(row['score']):.2f}"
        + (f" ({row['settings']})" if "settings" in row else "")
        for row in shown
    }
    lines = [
        [name, row["kinds"].replace(" ", ", ").replace("_", " "), row["of"]]
        + [cells.get((agent, name), "") for agent in agents]
        for name, row in sorted(experiments.items())
    ]
    scores = {agent: [float(row["score"]) for row in shown if row["agent"] == agent] for agent in agents}
    means = [f"{fmean(scores[agent]):.2f} of {len(scores[agent])}" for agent in agents]
    commits = sorted({f"`{commit}`" for row in rows for commit in row["commit"].split()})
    parts = [
        "# bsuite",
        "Written by `scripts/benchmarks/publish.py` from `docs/benchmarks/bsuite.csv`. bsuite (Osband et al. 2020, [arXiv "
        "1908.03568](https://arxiv.org/abs/1908.03568)) has 23 experiments on small environments. Each is scored from 0 to 1 by its "
        "own rule, mostly by the regret while learning. The three experiments with MNIST need a download; their pixels are read as "
        "numbers from 0 to 255, where bsuite 0.3.6 has signed bytes.",
        "\n".join(["```bash", "pip install bsuite", *bsuite_commands(rows), "```"]),
        "`DQN` has the settings of bsuite's own DQN, `ensemble` those with ten members in place of epsilon and batches of 128, "
        "`switches` those with double Q-learning, three-step returns, Munchausen rewards and normalized rewards; the numbers are in "
        "the script.",
        "An experiment has several settings, which differ in seed, size or scale. The number in parentheses is the number of "
        "settings trained on, evenly spaced from the first to the last; the score of few settings is coarse, since the first is often "
        f"the easiest and the last the hardest. Commits: {', '.join(commits)}. Columns without a number in parentheses are scores "
        "that bsuite's authors published, read from their figure.",
        table(["Experiment", "Kind", "Settings", *agents], [*lines, ["**mean**", "", "", *means]]),
        "![Mean score of each kind of experiment](../pictures/results-bsuite.svg)",
    ]
    return "\n\n".join(parts) + "\n"


def bsuite_commands(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the commands for the rows: one for each agent and number of settings, with the names of its experiments if not all."""
    groups: dict[tuple[str, int], list[str]] = defaultdict(list)
    for row in rows:
        groups[row["agent"], int(row["settings"])].append(row["experiment"])
    total = len({row["experiment"] for row in rows})
    return [
        f"python scripts/benchmarks/bsuite_scores.py {agent} --settings {count} --out runs/bsuite"
        + (f" --experiments {' '.join(experiments)}" if len(experiments) < total else "")
        for (agent, count), experiments in sorted(groups.items())
    ]


def by_kind(rows: Sequence[Mapping[str, str]]) -> dict[str, dict[str, float]]:
    """Returns the mean score of each agent on each kind of experiment."""
    groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for kind in row["kinds"].split():
            groups[row["agent"]][kind].append(float(row["score"]))
    return {agent: {kind: fmean(scores) for kind, scores in kinds.items()} for agent, kinds in groups.items()}


def radar(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Returns an SVG file with an axis from 0 to 1 for each kind, and a closed line for each agent through the kinds it has.

    An agent that has one kind has a line from the centre.
    """
    kinds = sorted({kind for values in scores.values() for kind in values})
    width, height, radius = 440, 300, 110
    angles = 2 * np.pi * np.arange(len(kinds)) / len(kinds)
    axes = dict(zip(kinds, zip(radius * np.sin(angles), -radius * np.cos(angles), strict=True), strict=True))

    def closed(values: Mapping[str, float], style: str) -> str:
        ends = [(value * axes[kind][0], value * axes[kind][1]) for kind, value in sorted(values.items())]
        ends = ends if len(ends) > 1 else [(0.0, 0.0), *ends]
        return f'<path class="{style}" d="M{"L".join(f"{width / 2 + x:.1f} {height / 2 + y:.1f}" for x, y in ends)}Z"/>'

    marks = [closed(dict.fromkeys(kinds, size), "grid") for size in (0.25, 0.5, 0.75, 1.0)]
    for kind, (x, y) in axes.items():
        anchor = "middle" if abs(x) < 1 else "start" if x > 0 else "end"
        place = f'x="{width / 2 + 1.07 * x:.0f}" y="{height / 2 + 1.07 * y + 4:.0f}"'
        marks.append(f'<text {place} text-anchor="{anchor}">{kind.replace("_", " ")}</text>')
    for color, (agent, values) in enumerate(scores.items()):
        marks.append(closed(values, f"line c{color}"))
        marks.append(f'<path class="line c{color}" d="M8 {16 + 16 * color}h18"/>')
        marks.append(f'<text x="32" y="{20 + 16 * color}">{agent}</text>')
    return svg(width, height, marks)


def svg(width: int, height: int, marks: Iterable[str]) -> str:
    """Returns an SVG file in the style of all pictures of results."""
    box = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
    return "\n".join([box, f"<style>{STYLE}</style>", *marks, "</svg>", ""])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folders", nargs="*", type=Path, help="folders of sb-dqn benchmark, whose runs are added to the data"
    )
    for folder in parser.parse_args(arguments).folders:
        merge(folder)
    for path, text in outputs().items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
