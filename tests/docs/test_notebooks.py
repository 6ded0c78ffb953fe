"""Code cells of the notebooks run, and are stored without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tests.marks import FULL

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@FULL
@pytest.mark.timeout(1200)  # that of the first steps on a busy machine
@pytest.mark.filterwarnings("error:learn")  # a notebook is to learn something
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["language"]) == (4, "python")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 3
    for number, cell in enumerate(cells):
        assert cell["outputs"] == []
        exec(compile("".join(cell["source"]), f"{path.name}, code cell {number}", "exec"), namespace)
