"""Hook of mkdocs: formulas of pages and docstrings as MathML, made while the site is built, so that it needs no script.

It reads fences of `math` in pages, which GitHub shows, too, and `.. math:: TeX` with indented further lines and the inline role `math`
in docstrings. Without the package latex2mathml the formulas stay TeX.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

BLOCK = re.compile(r"^(?:\.\. math::(.*(?:\n {4}.*\S.*)*)|```math\n([^`]*)\n```)$", re.MULTILINE)
INLINE = r":math:`([^`]+)`"


def as_html(tex: str, block: bool) -> str:
    """Returns a formula as MathML, or as code if latex2mathml is not installed."""
    tex = " ".join(tex.split())
    try:
        from latex2mathml.converter import convert
    except ImportError:
        return f"<pre><code>{escape(tex)}</code></pre>" if block else f"<code>{escape(tex)}</code>"
    formula = str(convert(tex, display="block" if block else "inline"))
    return f'<div class="formula">{formula}</div>' if block else formula


class Blocks(Preprocessor):  # type: ignore[misc]  # Markdown is published without types
    """Replaces displayed formulas before Markdown reads their characters."""

    def run(self, lines: list[str]) -> list[str]:
        def stored(found: re.Match[str]) -> str:
            return f"\n{self.md.htmlStash.store(as_html(found[1] or found[2], block=True))}\n"

        return BLOCK.sub(stored, "\n".join(lines)).split("\n")


class Inline(InlineProcessor):  # type: ignore[misc]  # Markdown is published without types
    """Replaces formulas in a line."""

    def handleMatch(self, found: re.Match[str], data: str) -> tuple[str, int, int]:
        return self.md.htmlStash.store(as_html(found[1], block=False)), found.start(0), found.end(0)


class Formulas(Extension):  # type: ignore[misc]  # Markdown is published without types
    """Adds both to Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.preprocessors.register(Blocks(md), "formulas", 28)
        md.inlinePatterns.register(Inline(INLINE, md), "formulas", 195)  # before code in backticks


def on_config(config: Any) -> Any:
    """Adds the extension for the pages and for mkdocstrings."""
    config.markdown_extensions.append(Formulas())
    return config
