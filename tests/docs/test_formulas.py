"""Hooks of the documentation: no raw TeX where latex2mathml is installed, TeX as code where it is not; whole names in tables."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.docs.pages import ROOT

markdown = pytest.importorskip("markdown", reason="of mkdocs, of the extra docs")

TEXT = """Returns :math:`a_t` of `b`.

.. math:: x_t = \\alpha
    y_t

```math
z < 1
```
"""


def load(hook: str) -> Any:
    """Imports a hook of the documentation, which is no package."""
    spec = importlib.util.spec_from_file_location(hook, ROOT / f"docs/hooks/{hook}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def render() -> Any:
    module = load("formulas")
    return lambda text: markdown.markdown(text, extensions=["fenced_code", module.Formulas()])


def test_formulas_are_made_while_the_site_is_built(render: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    converter = ModuleType("latex2mathml.converter")
    converter.__dict__["convert"] = lambda tex, display: f"<math display='{display}'>{tex}</math>"
    monkeypatch.setitem(sys.modules, "latex2mathml", ModuleType("latex2mathml"))
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", converter)
    lines = [line for line in render(TEXT).split("\n") if line]
    assert lines == [
        "<p>Returns <math display='inline'>a_t</math> of <code>b</code>.</p>",
        "<div class=\"formula\"><math display='block'>x_t = \\alpha y_t</math></div>",
        "<div class=\"formula\"><math display='block'>z < 1</math></div>",
    ]


def test_without_the_package_formulas_are_code(render: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    lines = [line for line in render(TEXT).split("\n") if line]
    assert lines == [
        "<p>Returns <code>a_t</code> of <code>b</code>.</p>",
        "<pre><code>x_t = \\alpha y_t</code></pre>",
        "<pre><code>z &lt; 1</code></pre>",
    ]


def test_names_in_tables_are_not_broken() -> None:
    hook = load("tables")
    page = "<table><td><code>--final-steps N</code> a-b</td></table><code>x-y</code>"
    whole = '<span class="whole">--final-steps</span>'
    expected = f"<table><td><code>{whole} N</code> a-b</td></table><code>x-y</code>"
    assert hook.on_page_content(page) == expected
    assert hook.on_page_content(f"<table><td>{'a ' * 30}</td></table>").startswith('<table><td class="sentence">a a')
    style = (ROOT / "docs/pages/assets/wide.css").read_text(encoding="utf-8")
    assert ".md-typeset table .whole { white-space: nowrap; }" in style
    assert ".md-typeset table .sentence { min-width" in style
