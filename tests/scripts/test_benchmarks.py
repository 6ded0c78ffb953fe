"""The benchmark tools: the sums behind their table, their settings, and one tiny measurement from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.benchmarks import run, suite
from scripts.benchmarks.catch import BALLS, CELLS, PIXELS, Catch
from scripts.benchmarks.measurements import Benchmark, Measurement
from scripts.benchmarks.table import Comparison, Finding, Spread, compare, report, spread
from tests.marks import FULL, SLOW

ROUNDS = [{"ours": 300.0, "peer": 100.0}, {"ours": 100.0, "peer": 50.0}, {"ours": 800.0, "peer": 200.0}]


def test_a_ratio_is_the_median_of_the_pairs() -> None:
    finding = compare(Comparison("times", ("ours",), ("peer",)), ROUNDS)
    assert finding.spread == Spread(3.0, 2.0, 4.0, 3)  # pairs: 3, 2, 4
    # decoys: the ratio of the medians is 3 too with these numbers, with one more round it is not
    uneven = [*ROUNDS, {"ours": 1000.0, "peer": 1000.0}, {"ours": 10.0, "peer": 10.0}]
    finding = compare(Comparison("times", ("ours",), ("peer",)), uneven)
    assert finding.spread is not None
    assert finding.spread.median == 2.0  # pairs 3, 2, 4, 1, 1; of medians 300 / 100 = 3; of means 2210 / 1360 = 1.6


def test_where_less_is_better_the_ratio_says_how_many_times_faster() -> None:
    times = [{"ours": 2.0, "peer": 5.0}, {"ours": 4.0, "peer": 8.0}, {"ours": 1.0, "peer": 4.0}]
    finding = compare(Comparison("times faster", ("ours",), ("peer",)), times, less_is_better=True)
    assert finding.spread == Spread(2.5, 2.0, 4.0, 3)


def test_of_several_series_the_best_median_is_compared() -> None:
    rounds = [{"a": 10.0, "b": 8.0, "p": 2.0, "q": 4.0}, {"a": 1.0, "b": 8.0, "p": 9.0, "q": 4.0}] * 2
    finding = compare(Comparison("times", ("a", "b"), ("p", "q")), rounds)
    assert (finding.ours, finding.peer) == ("b", "p")  # medians 5.5 < 8 and 5.5 > 4
    finding = compare(Comparison("times", ("a", "b"), ("p", "q")), rounds, less_is_better=True)
    assert (finding.ours, finding.peer) == ("a", "q")


def test_a_difference_is_paired_too() -> None:
    rounds = [{"a": 3.0, "b": 1.0}, {"a": 10.0, "b": 9.0}, {"a": 6.0, "b": 2.0}]
    finding = compare(Comparison("more", ("a",), ("b",), "difference", at_most=2.0), rounds, less_is_better=True)
    assert finding.spread == Spread(2.0, 1.0, 4.0, 3)
    assert finding.met is True


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [(3.0, None, True), (3.1, None, False), (None, 2.9, False), (2.0, 3.0, True), (None, None, None)],
)
def test_bounds_are_held_against_the_median(low: float | None, high: float | None, met: bool | None) -> None:
    comparison = Comparison("times", ("ours",), ("peer",), at_least=low, at_most=high)
    assert compare(comparison, ROUNDS).met is met
    assert compare(comparison.without_bounds(), ROUNDS).met is None


def test_what_was_not_measured_is_said() -> None:
    comparison = Comparison("times", ("ours",), ("peer",), at_least=1.0)
    finding = compare(comparison, [{"ours": 1.0}])
    assert finding == Finding(comparison, None)
    assert "not measured" in report("name", "unit", [{"ours": 1.0}], [finding])


def test_a_round_that_lacks_one_side_makes_no_pair() -> None:
    finding = compare(Comparison("times", ("ours",), ("peer",)), [*ROUNDS, {"ours": 1e9}])
    assert finding.spread == Spread(3.0, 2.0, 4.0, 3)


def test_a_comparison_without_a_peer_is_a_value() -> None:
    with pytest.raises(ValueError, match="needs at least one"):
        Comparison("times", ("ours",))
    assert compare(Comparison("value", ("ours",), how="value"), ROUNDS).spread == Spread(300.0, 100.0, 800.0, 3)


def test_the_report_shows_figures_and_verdicts() -> None:
    rounds = [{**one, "ours updates/step": 0.25} for one in ROUNDS]
    text = report(
        "cartpole", "steps/s", rounds, [compare(Comparison("times", ("ours",), ("peer",), at_least=9.0), rounds)]
    )
    assert "cartpole [steps/s]" in text
    assert "MISSED" in text
    assert "updates/step" not in text
    assert len({line.rstrip()[-6:] for line in text.splitlines() if "MISSED" in line}) == 1


def test_spread_and_mean() -> None:
    assert spread([4.0, 1.0, 2.0, 100.0]) == Spread(3.0, 1.0, 100.0, 4)


@pytest.mark.parametrize("scale", [suite.FULL, suite.QUICK], ids=["full", "quick"])
def test_every_comparison_names_series_that_are_measured(scale: suite.Scale) -> None:
    names = set()
    for benchmark in suite.suite(scale):
        names.add(benchmark.name)
        measured = tuple(one.name for one in benchmark.measurements)
        for comparison in benchmark.comparisons:
            known = [any(name.startswith(one) for one in measured) for name in (*comparison.ours, *comparison.peers)]
            # an alternative may be left out of the quick run, a side may not
            assert any(known[: len(comparison.ours)]), comparison
            assert not comparison.peers or any(known[len(comparison.ours) :]), comparison
    assert {"cartpole-default", "cartpole-zoo", "cartpole-whole", "pong-1", "pong-8", "stream", "replay"} <= names


def test_both_sides_of_a_training_benchmark_have_the_same_settings() -> None:
    cadence = {"train_freq", "gradient_steps", "precision", "torch_compile"}
    for benchmark in suite.suite(suite.FULL):
        sides = [one.arguments for one in benchmark.measurements if one.function == "throughput.train"]
        for side in sides:
            settings = {name: value for name, value in side["settings"].items() if name not in cadence}
            first = {name: value for name, value in sides[0]["settings"].items() if name not in cadence}
            assert settings == first
            assert {**side, "settings": 0, "library": 0, "threads": 0} == {
                **sides[0], "settings": 0, "library": 0, "threads": 0
            }  # fmt: skip


@FULL
def test_a_tiny_benchmark_runs_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"rows": 400, "lanes": 2, "n_steps": 3, "batch_sizes": [8], "seconds": 0.05}
    tiny = Benchmark(
        "replay",
        "batches/s",
        (
            Measurement("tiny", "components.sampling", small),
            Measurement("foreign", "components.sampling", small, peer="no_such_package"),
        ),
        (Comparison("batches", ("tiny batch 8",), how="value", at_least=1.0),),
    )
    monkeypatch.setattr(run, "suite", lambda scale: (tiny,))
    path = tmp_path / "figures.json"
    assert run.main(["replay", "--rounds", "2", "--json", str(path)]) == 1  # the foreign one could not be measured
    told = capsys.readouterr()
    assert "tiny batch 8" in told.out
    assert "no_such_package is not installed" in told.err
    entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]["replay"]
    assert [set(one) for one in entry["rounds"]] == [{"tiny batch 8", "tiny batch 8 eagerly"}] * 2
    (comparison,) = entry["comparisons"]
    assert comparison["met"] is True
    assert comparison["median"] == pytest.approx(np.median([one["tiny batch 8"] for one in entry["rounds"]]))


@FULL
def test_a_measurement_that_fails_is_told_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    broken = Measurement("broken", "components.sampling", {"rows": -1})
    figures, failures = run.run_benchmark(Benchmark("broken", "unit", (broken,)), 3)
    assert figures == [{}, {}, {}]
    assert failures == ["broken, broken: exit status 1"]


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["cartpol"])
    assert "there are: cartpole-default" in capsys.readouterr().err


@SLOW
def test_training_is_measured_after_the_warm_up() -> None:
    from scripts.benchmarks.throughput import train

    figures = train("sb_dqn", "MlpPolicy", "CartPole-v1", {"learning_starts": 20}, warm_up=100, steps=200, threads=1)
    assert figures["updates/step"] == pytest.approx(0.25, abs=0.01)
    assert figures[""] > 0


def test_catch_pays_for_a_caught_ball() -> None:
    env = Catch()
    for follow, expected in ((True, float(BALLS)), (False, None)):
        image, _ = env.reset(seed=3)
        assert image.shape == (1, CELLS * PIXELS, CELLS * PIXELS)
        score, ended, steps = 0.0, False, 0
        while not ended:
            action = 1 + np.sign(env.column - env.paddle) if follow else 1
            _, reward, ended, _, _ = env.step(np.int64(action))
            score, steps = score + reward, steps + 1
        assert steps == BALLS * (CELLS - 1)
        assert expected is None or score == expected
