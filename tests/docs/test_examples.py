"""The scripts of the gallery run in a short form and write their pictures, and the page shows all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot

from tests.docs.pages import FOLDER
from tests.marks import SLOW, a_few

EXAMPLES = sorted((FOLDER / "examples").glob("*.py"))
PICTURES = sorted((FOLDER / "pictures" / "examples").iterdir())
NAMES = [path.stem for path in EXAMPLES]
QUICK = ("cartpole", "own_environment", "several_agents")
SHORT = {"minatar_breakout": 5_080, "pong": 5_080, "recurrent": 2_200, "tune_settings": 600}
"""Env steps of those whose first update comes later, or sooner, than after 1,000 of them."""
EXTRAS = {
    "lunar_lander": ("Box2D", "box2d"),
    "minatar_breakout": ("minatar", "minatar"),
    "onnx_in_browser": ("onnxruntime", "onnx"),
    "several_agents": ("pettingzoo", "test"),
    "tune_settings": ("optuna", "tune"),
}
"""Module that an example needs, and the extra that installs it."""


def shortened(name: str) -> str:
    """Returns the source of an example with fewer env steps, seeds and trials."""
    source = (FOLDER / "examples" / f"{name}.py").read_text(encoding="utf-8")
    source, found = re.subn(r"^STEPS = [\d_]+", f"STEPS = {SHORT.get(name, 1_100)}", source, flags=re.MULTILINE)
    assert found == 1, "an example must have one line `STEPS = ...`"
    source = re.sub(r"^SEEDS = .+", "SEEDS = (1, 2)", source, flags=re.MULTILINE)
    return re.sub(r"^TRIALS = \d+", "TRIALS = 2", source, flags=re.MULTILINE)


@SLOW
@pytest.mark.filterwarnings("error:learn")  # an example is to learn something
@pytest.mark.parametrize("name", a_few(NAMES, *QUICK))
def test_an_example_runs_and_writes_its_picture(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, extra = EXTRAS.get(name, ("sb_dqn", ""))
    pytest.importorskip(module, reason=f"optional, of the extra {extra}")
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")  # no window on a machine with a screen
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        exec(compile(shortened(name), f"{name}.py", "exec"), namespace)
    finally:
        pyplot.close("all")
    (picture,) = (path.name for path in PICTURES if path.stem == name)
    assert (tmp_path / picture).stat().st_size > 1_000


def test_the_gallery_shows_every_example_with_its_picture() -> None:
    text = (FOLDER / "gallery.md").read_text(encoding="utf-8")
    assert re.findall(r"\(examples/(\w+)\.py\)", text) == re.findall(r"\(pictures/examples/(\w+)\.\w+\)", text)
    assert sorted(re.findall(r"\(examples/(\w+)\.py\)", text)) == NAMES == [path.stem for path in PICTURES]
    assert [path.name for path in PICTURES if path.stat().st_size > 150_000] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_begins_with_what_it_shows(name: str) -> None:
    source = (FOLDER / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert 20 <= source.count("\n") <= 70
    assert " on two cores" in source.split('"""')[1]
