"""What the documentation shows runs: Python blocks page by page, commands against the parser, tables against the code."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from sb_dqn.algorithms import DQN
from sb_dqn.algorithms.outside import NOT_NEEDED
from sb_dqn.cli.main import commands
from sb_dqn.cli.names import ALGORITHMS, algorithm_class, constructor_defaults, parse_assignments

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "pages").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
KNOWN_PROGRAMS = {"pip", "sb-dqn", "python"}
SCRIPT = re.compile(r"scripts/[\w/.]*\w")


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


def shell_commands() -> Iterator[tuple[str, list[str]]]:
    """`(where, words)` of every command in a bash block; words after `#` and `VAR=…` in front are left out."""
    for page in PAGES:
        for block in blocks(page, "bash"):
            for number, line in enumerate(block.code.splitlines(), block.line):
                words = shlex.split(line, comments=True)
                if words:
                    yield f"{name_of(page)}:{number}", words


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page in one namespace, in order; line numbers in a traceback are those of the page."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for block in blocks(page, "python"):
        source = "\n" * (block.line - 1) + block.code
        exec(compile(source, str(page), "exec"), namespace)


SHELL = list(shell_commands())


@pytest.mark.parametrize(("where", "words"), SHELL, ids=[where for where, _ in SHELL])
def test_commands_exist(where: str, words: list[str], folder_of_runs: None) -> None:
    program = words[0]
    if program.startswith("scripts/"):
        assert (ROOT / program).is_file()
        return
    assert program in KNOWN_PROGRAMS, f"{where}: teach this test to check {program!r}"
    if program == "sb-dqn":
        parse(words[1:])


@pytest.fixture
def folder_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the examples call a run; a command looks whether it is there before it reads it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "dqn_CartPole-v1_1").mkdir(parents=True)


def parse(words: list[str]) -> None:
    """Reads the words as `sb-dqn` would, without running anything.

    Raises:
        click.UsageError: an unknown command, option or algorithm, a missing argument, or a value that does not fit.
    """
    command = commands.commands[words[0]]
    given = command.make_context(words[0], list(words[1:])).params
    if words[0] == "train":
        defaults = constructor_defaults(algorithm_class(given["algo"]))
        assert parse_assignments(given["assignments"]).keys() <= defaults.keys()


@pytest.mark.parametrize(
    "wrong",
    ["train dqn CartPole-v1 --lr 1", "train dqn", "train dqn X --set lr=1", "train ppo X", "train dqn X --n-envs 0",
     "evaluate a b", "plot runs/dqn_CartPole-v1_1 --against night"],
)  # fmt: skip
def test_wrong_commands_would_be_noticed(wrong: str, folder_of_runs: None) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        parse(shlex.split(wrong))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_exist(page: Path) -> None:
    """Scripts, tests and links that a page names."""
    text = page.read_text(encoding="utf-8")
    named = set(SCRIPT.findall(text)) | set(re.findall(r"(?:tests|sb_dqn)/[\w/]+\.py", text))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    links = {link for link in LINK.findall(text) if not link.startswith("http")}
    assert [link for link in sorted(links) if not (page.parent / link).exists()] == []


def table_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its first two lines."""
    text = (ROOT / "docs" / "pages" / page).read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def test_the_table_of_defaults_is_that_of_the_constructor() -> None:
    shown = {
        row[0].strip("`"): ast.literal_eval(row[1].strip("`")) for row in table_of("algorithms/dqn.md", "Defaults")
    }
    assert shown == constructor_defaults(DQN)


def test_the_migration_page_names_every_keyword_that_is_refused() -> None:
    keywords = " ".join(row[0] for row in table_of("migration.md", "Keywords that are not taken"))
    assert [name for name in NOT_NEEDED if f"`{name}`" not in keywords] == []


def test_the_command_page_names_every_command_and_algorithm() -> None:
    text = (ROOT / "docs" / "pages" / "cli.md").read_text(encoding="utf-8")
    assert [name for name in commands.commands if f"| `{name}" not in text] == []
    assert [name for name in ALGORITHMS if f"`{name.lower()}`" not in text] == []
