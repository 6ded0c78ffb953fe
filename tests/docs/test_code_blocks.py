"""What the documentation shows runs: Python blocks page by page, commands against the parser; what it names exists."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any

import click
import pytest

from sb_dqn.algorithms import registry
from sb_dqn.cli.main import commands
from sb_dqn.runs.settings_syntax import algorithm_class, constructor_defaults, parse_assignments
from sb_dqn.sb3_names import UNUSED_KEYWORDS
from tests.docs.pages import FOLDER, PAGES, ROOT, blocks, name_of, pages_with, table_of
from tests.marks import a_few

LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
KNOWN_PROGRAMS = {"pip", "pytest", "sb-dqn", "python", "tensorboard", "torchrun"}
OPTIONAL = {"recipes/wandb.md": "wandb", "recipes/mlflow.md": "mlflow"}
"""Pages about packages that the test extra does not install."""
FIRST = [ROOT / "README.md", FOLDER / "index.md", FOLDER / "getting-started.md"]
"""Pages whose first example learns CartPole."""
SCRIPT = re.compile(r"scripts/[\w/.]*\w")
SETTING = re.compile(r"[A-Z_]+=")


def shell_commands() -> Iterator[tuple[str, list[str]]]:
    """`(where, words)` of every command in a bash block; words after `#` and `VAR=…` in front are left out."""
    for page in PAGES:
        for block in blocks(page, "bash"):
            for number, line in enumerate(block.code.splitlines(), block.line):
                words = list(dropwhile(SETTING.match, shlex.split(line, comments=True)))
                if words:
                    yield f"{name_of(page)}:{number}", words


@pytest.mark.timeout(1200)  # that of the first examples on a busy machine
@pytest.mark.filterwarnings("error:learn")  # what a page shows is to learn something
@pytest.mark.parametrize("page", a_few(pages_with("python"), FOLDER / "algorithms/index.md"), ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page in one namespace, in order; line numbers in a traceback are those of the page."""
    if needed := OPTIONAL.get(str(page.relative_to(FOLDER)) if page.is_relative_to(FOLDER) else ""):
        pytest.importorskip(needed, reason=f"optional, of the extra {needed}")
        warnings.simplefilter("ignore", DeprecationWarning)  # of the package; pytest restores the filters
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for number, block in enumerate(blocks(page, "python")):
        source = "\n" * (block.line - 1) + block.code
        exec(compile(source, str(page), "exec"), namespace)
        if number == 0 and page in FIRST:
            assert "# 500 ± 0" in block.code
            assert namespace["mean"] > 450  # seeds gave 477 to 500 on other processors


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
    ["train dqn CartPole-v1 --lr 1", "train dqn", "train dqn X --set lr=1", "train ppoo X", "train dqn X --n-envs 0",
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
    assert "github.com/sb-dqn" not in text  # links work in every clone and on every host
    assert [link for link in sorted(links) if not (page.parent / link).exists()] == []


def test_the_migration_page_names_every_keyword_that_is_refused() -> None:
    keywords = " ".join(row[0] for row in table_of("migration.md", "## Keywords that are not accepted"))
    assert [name for name in UNUSED_KEYWORDS if f"`{name}`" not in keywords] == []


def test_the_command_page_names_every_command_and_algorithm() -> None:
    text = (FOLDER / "cli.md").read_text(encoding="utf-8")
    assert [name for name in commands.commands if f"| `{name}" not in text] == []
    assert [name for name in registry.NAMES if f"`{name.lower()}`" not in text.lower()] == []
