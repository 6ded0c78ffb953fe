"""Page of the scores of bsuite."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from scripts.benchmarks.publishing.pages import table


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
        "\n".join(["```bash", "pip install 'sb_dqn[bsuite]'", *bsuite_commands(rows), "```"]),
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
