"""Page of a report: its parts from the runs, and the HTML from the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from sb_dqn.cli.report import figures
from sb_dqn.cli.report.film import Film, find_film
from sb_dqn.cli.report.settings import environment_table, settings_table
from sb_dqn.plotting.svg import COLORS, Chart
from sb_dqn.runs.run import Run
from sb_dqn.runs.score import Score, caption, several_seeds
from sb_dqn.runs.statistics import interquartile_mean
from sb_dqn.version import __version__

GENERATOR = "sb-dqn report"
"""Mark of our own pages, which may be overwritten."""
Variables = dict[str, Any]
"""Variables of a template, or of a part of one."""
MINUS = "\N{MINUS SIGN}"


def render(groups: Mapping[str, Sequence[Score]]) -> str:
    """Returns the page of one run, or of the comparison of several, in groups by environment."""
    runs = [run for same in groups.values() for group in same for run in group.runs]
    parts = _one_run(runs[0]) if len(runs) == 1 else _several_runs(groups)
    return _fill_in({**parts, "generator": f"{GENERATOR} {__version__}", "created": _now()})


def _one_run(run: Run) -> Variables:
    config = run.config
    group = Score(run.algorithm, [run])
    special, ordinary = settings_table([group])
    film = find_film(run, "an episode of the trained agent")
    return {
        "title": f"{run.algorithm} on {run.env_id}",
        "subtitle": _subtitle(run),
        "facts": _facts(run),
        "sections": [{"env_id": run.env_id, "charts": _drawn([figures.learning_chart(run)])}],
        "single": True,
        "scores": _score_facts(run),
        "score_chart": figures.score_chart(run.returns) if len(run.returns) > 1 else None,
        "evaluations": _evaluations(run),
        "films": [film] if film else [],
        "details": figures.log_charts([group]),
        "labels": [""],
        "settings": special,
        "other_settings": ordinary,
        "preset": config.get("preset"),
        "environment": environment_table([run]),
        "commands": [str(config["command"])] if config.get("command") else [],
        "runs": [],
    }


def _several_runs(groups: Mapping[str, Sequence[Score]]) -> Variables:
    everything = [group for same in groups.values() for group in same]
    runs = [run for group in everything for run in group.runs]
    special, ordinary = settings_table(everything)
    algorithms = list(dict.fromkeys(run.algorithm for run in runs))
    commands = dict.fromkeys(
        str(group.runs[0].config["command"]) for group in everything if group.runs[0].config.get("command")
    )
    labels = [
        group.label if len(groups) == 1 else f"{group.label}, {env}" for env, same in groups.items() for group in same
    ]
    unfinished = sum(not run.result.finished for run in runs)
    subtitle = [f"{len(runs)} runs", _step_range(runs), _date(runs[0])]
    if unfinished:
        subtitle.append(f"{unfinished} not finished")
    return {
        "title": f"{_listed(algorithms)} on {_listed(list(groups))}",
        "subtitle": [text for text in subtitle if text],
        "facts": [],
        "sections": [_section(env_id, same) for env_id, same in groups.items()],
        "single": False,
        "films": [film for group in everything if (film := _typical_film(group))],
        "details": [],
        "labels": labels,
        "settings": special,
        "other_settings": ordinary,
        "preset": None,
        "environment": environment_table(runs),
        "commands": list(commands),
        "runs": [_run_row(group, run) for group in everything for run in group.runs],
    }


def _section(env_id: str, groups: Sequence[Score]) -> Variables:
    """Returns curves, table and diagnostics of the groups on one environment."""
    legend = [
        (f"line c{number % COLORS}", f"{group.label} ({len(group.drawn)})") for number, group in enumerate(groups)
    ]
    scored = {number: group for number, group in enumerate(groups) if group.finished}
    span = _span(list(scored.values())) if scored else (0.0, 0.0)
    rows = [_score_row(number, score, span) for number, score in scored.items()]
    return {
        "env_id": env_id,
        "legend": legend,
        "charts": _drawn([figures.evaluation_chart(groups), figures.training_chart(groups)]),
        "table": rows,
        "caption": caption(None, several_seeds(scored.values())) if rows else "",
        "missing": [f"{group.label} has no finished final episode yet." for group in groups if not group.finished],
        "details": figures.log_charts(groups),
        "several_seeds": several_seeds(groups),
    }


def _score_row(number: int, score: Score, span: tuple[float, float]) -> Variables:
    """Returns a row of the table of scores, with the places of its interval and seeds in percent of `span`."""
    low, width = span[0], (span[1] - span[0]) or 1.0

    def place(value: float) -> float:
        return round((value - low) / width * 100, 2)

    interval = score.estimate.interval
    return {
        "color": number % COLORS,
        "label": score.label,
        "mean": _signed(score.mean_text),
        "iqm": _signed(f"{score.estimate.value:.1f}"),
        "interval": _signed(score.interval_text),
        "seeds": len(score.means),
        "steps": f"{score.steps:,}",
        "time": duration(score.seconds),
        "bar": (place(interval[0]), place(interval[1]) - place(interval[0])) if interval else None,
        "dot": place(score.estimate.value),
        "points": [place(float(mean)) for mean in score.means],
    }


def _span(scores: Sequence[Score]) -> tuple[float, float]:
    """Returns the range of the scores and their intervals, with a margin."""
    values = [float(mean) for score in scores for mean in score.means]
    values += [bound for score in scores for bound in score.estimate.interval or ()]
    margin = 0.04 * (max(values) - min(values)) or 1.0
    return min(values) - margin, max(values) + margin


def _run_row(group: Score, run: Run) -> Variables:
    best = run.curve.eval_returns.mean(axis=1)
    return {
        "label": group.label,
        "env_id": run.env_id,
        "seed": run.seed,
        "score": _signed(f"{run.returns.mean():.1f} ± {run.returns.std():.1f}") if len(run.returns) else "–",
        "best": _signed(f"{best.max():.1f}") if len(best) else "–",
        "steps": f"{run.steps:,}",
        "time": duration(run.seconds),
        "speed": f"{run.steps / run.seconds:,.0f}" if run.seconds else "–",
        "status": "finished" if run.result.finished else "not finished",
        "folder": run.folder.name,
    }


def _facts(run: Run) -> list[tuple[str, str, str]]:
    """Returns the numbers at the head of the page of one run: label, value, detail."""
    facts = []
    if len(run.returns):
        value = _signed(f"{run.returns.mean():.1f}")
        facts.append(("Final return", value, f"± {run.returns.std():.1f} over {len(run.returns)} greedy episodes"))
    elif len(run.curve.returns):
        last = run.curve.returns[-100:]
        facts.append(("Return while training", _signed(f"{last.mean():.1f}"), f"mean of the last {len(last)} episodes"))
    if len(run.curve.eval_steps):
        means = run.curve.eval_returns.mean(axis=1)
        detail = f"at step {run.curve.eval_steps[means.argmax()]:,.0f}"
        facts.append(("Best evaluation", _signed(f"{means.max():.1f}"), detail))
    planned = run.config.get("n_timesteps")
    more = f"of {planned:,}" if isinstance(planned, int) and not run.result.finished else ""
    facts.append(("Env steps", f"{run.steps:,}", more or f"{len(run.curve.returns):,} episodes"))
    if run.seconds:
        facts.append(("Training time", duration(run.seconds), f"{run.steps / run.seconds:,.0f} env steps/s"))
    return facts


def _score_facts(run: Run) -> list[tuple[str, str]]:
    """Returns the table of final results of one run."""
    returns, evaluation = run.returns, run.result.evaluation
    if not len(returns):
        return []
    requested = f" of {evaluation.episodes}" if evaluation and run.result.unfinished_episodes else ""
    rows = [
        ("finished greedy episodes", f"{len(returns)}{requested}"),
        ("mean ± sd", f"{returns.mean():.2f} ± {returns.std():.2f}"),
        ("interquartile mean", f"{float(interquartile_mean(returns)):.2f}"),
        ("median", f"{np.median(returns):.2f}"),
        ("smallest, largest", f"{returns.min():.2f}, {returns.max():.2f}"),
    ]
    if evaluation and not run.result.unfinished_episodes:
        rows.append(("mean length", f"{evaluation.steps / len(returns):,.0f} env steps"))
    return [(name, _signed(value)) for name, value in rows]


def _evaluations(run: Run) -> list[tuple[str, ...]]:
    """Returns step, mean, standard deviation, smallest and largest return of each evaluation."""
    return [
        (f"{step:,.0f}", *(_signed(f"{value:.1f}") for value in (row.mean(), row.std(), row.min(), row.max())))
        for step, row in zip(run.curve.eval_steps, run.curve.eval_returns, strict=True)
    ]


def _typical_film(group: Score) -> Film | None:
    """Returns the film of the run with the median score among those that have one."""
    run = typical_run(group.runs)
    order = [run, *(other for other in group.runs if other is not run)]
    for each in order:
        score = "" if each.result.mean is None else f", mean return {each.result.mean:.1f}"
        if film := find_film(each, f"{group.label}, seed {each.seed}{score}"):
            return film
    return None


def typical_run(runs: Sequence[Run]) -> Run:
    """Returns the run with the median final score (the lower of two); without scores the first."""
    scored = sorted((run.result.mean, number) for number, run in enumerate(runs) if run.result.mean is not None)
    return runs[scored[(len(scored) - 1) // 2][1]] if scored else runs[0]


def _subtitle(run: Run) -> list[str]:
    planned = run.config.get("n_timesteps")
    parts = [f"seed {run.seed}", f"{run.steps:,} env steps"]
    if not run.result.finished:
        parts[1] += f" of {planned:,}, not finished" if isinstance(planned, int) else ", not finished"
    return [part for part in (*parts, _date(run)) if part]


def _step_range(runs: Sequence[Run]) -> str:
    """Returns the env steps of the runs, without the few by which several lanes exceed the planned ones."""
    steps = sorted({run.budget for run in runs})
    return f"{steps[0]:,} env steps each" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,} env steps"


def _date(run: Run) -> str:
    """Returns the day on which a run was started, as `23 November 2026`."""
    try:
        started = datetime.fromisoformat(str(run.config.get("started")))
    except ValueError:
        return ""
    return f"{started.day} {started:%B %Y}"


def _now() -> str:
    now = datetime.now(timezone.utc)
    return f"{now.day} {now:%B %Y, %H:%M} UTC"


def _listed(names: Sequence[str]) -> str:
    """Returns names as text: "A", "A and B", "A, B and C", or the first of many."""
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} others"
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


def duration(seconds: float) -> str:
    """Returns a duration such as `48 s`, `12 min` or `3 h 20 min`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def _signed(text: str) -> str:
    """Returns a number as text with true minus signs."""
    return text.replace("-", MINUS)


def _drawn(charts: Sequence[Chart | None]) -> list[Chart]:
    return [chart for chart in charts if chart is not None]


def _fill_in(parts: Variables) -> str:
    """Returns the template filled in; every text is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup((folder / "style.css").read_text(encoding="utf-8"))
    return environment.get_template("page.html").render(parts, style=style)
