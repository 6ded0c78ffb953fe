"""Hook of mkdocs: names and options such as `--final-steps` in the tables of pages are not broken at hyphens and braces."""

from __future__ import annotations

import re
from typing import Any

TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
CODE = re.compile(r"(?<=<code>)[^<]*(?=</code>)")
BREAKABLE = re.compile(r"\S*[^\w\s]\S*")


def on_page_content(html: str, **_: Any) -> str:
    """Marks the words of code that a browser may break; the style sheet keeps them whole."""

    def mark(code: re.Match[str]) -> str:
        return BREAKABLE.sub(r'<span class="whole">\g<0></span>', code[0])

    return TABLE.sub(lambda table: CODE.sub(mark, table[0]), html)
