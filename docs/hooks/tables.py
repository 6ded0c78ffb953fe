"""Hook of mkdocs: in tables, names such as `--final-steps` are not broken at hyphens, and sentences stay readable on a phone."""

from __future__ import annotations

import re
from typing import Any

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
CELL = re.compile(r"<td>(.*?)</td>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]*(?=</code>)")
BREAKABLE = re.compile(r"\S*[^\w\s]\S*")
SENTENCE = 40
"""Characters from which on a cell has a minimum width."""


def on_page_content(html: str, **_: Any) -> str:
    """Marks what the style sheet keeps whole or wide: words of code that a browser may break, and cells with sentences."""
    return TABLE.sub(lambda table: CELL.sub(_cell, CODE.sub(_code, table[0])), html)


def _code(code: re.Match[str]) -> str:
    return BREAKABLE.sub(r'<span class="whole">\g<0></span>', code[0])


def _cell(cell: re.Match[str]) -> str:
    text = re.sub(r"<[^>]*>", "", cell[1])
    return cell[0].replace("<td>", '<td class="sentence">', 1) if len(text) > SENTENCE else cell[0]
