"""The pages of the documentation, their fenced blocks and their tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pages"
PAGES = [ROOT / "README.md", *sorted(FOLDER.rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    line: int
    """Of the page, of the block's first line."""
    code: str


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [Block(m[1], text.count("\n", 0, m.start(2)) + 1, m[2]) for m in FENCE.finditer(text)]
    return [block for block in found if block.language == language]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def rows_of(text: str) -> list[list[str]]:
    """The cells of all tables of a text, without each one's first two lines."""
    found: list[list[str]] = []
    for table in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        found += [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()[2:]]
    return found


def section_of(page: Path, heading: str) -> str:
    """What stands under a heading such as `## Defaults`, up to the next one of its level or above."""
    level = heading.split(" ")[0]
    text = page.read_text(encoding="utf-8").split(f"\n{heading}\n")[1]
    return re.split(rf"^#{{1,{len(level)}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def table_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables under a heading of a page."""
    return rows_of(section_of(FOLDER / page, heading))
