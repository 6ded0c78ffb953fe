"""What a release repeats is said alike: versions, supported Pythons, links of the project."""

from __future__ import annotations

import configparser
import re
from importlib.metadata import requires

import yaml

from sb_dqn.version import __version__
from tests.docs.pages import ROOT


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_the_citation_and_the_changelog_name_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == __version__
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:4] == "## ["]
    assert __version__ in headings[0]


def test_ruff_has_one_version() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    (rev,) = [each["rev"] for each in hooks if each["repo"].endswith("/ruff-pre-commit")]
    assert f"ruff=={rev.removeprefix('v')}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_every_supported_python_is_tested_on_every_system() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["tests"]["strategy"]["matrix"]
    classifiers = setup_cfg()["metadata"]["classifiers"].split("\n")
    pythons = [line.rpartition(" ")[2] for line in classifiers if "Python :: 3." in line]
    assert matrix["python"] == pythons
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    systems = [line for line in classifiers if line.startswith("Operating System")]
    assert len(systems) == len(matrix["os"])


def test_the_extra_video_has_the_package_that_gymnasium_records_with() -> None:
    """`gymnasium.wrappers.RecordVideo` imports a package that gymnasium itself has only in an extra for everything."""
    extra = [line for line in setup_cfg()["options.extras_require"]["video"].split("\n") if line]
    offered = {re.split(r"[^\w.-]", line)[0] for line in extra}
    recorders = {re.split(r"[^\w.-]", line)[0] for line in requires("gymnasium") or () if "extra ==" in line}
    assert "moviepy" in recorders & offered
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert all(re.search(rf"(?m)^{name}==", pinned) for name in offered)


def test_the_readme_and_the_first_page_name_every_extra_and_every_recipe() -> None:
    extras = set(setup_cfg()["options.extras_require"])
    for name, heading in (("README.md", "## Install"), ("docs/pages/getting-started.md", "## Install")):
        text = (ROOT / name).read_text(encoding="utf-8").partition(heading)[2].partition("\n## ")[0]
        cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
        assert {extra for cell in cells for extra in re.findall(r"`(\w+)`", cell)} == extras
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    recipes = sorted((ROOT / "docs/pages/recipes").glob("*.md"))
    assert [path.name for path in recipes if f"recipes/{path.name})" not in readme] == []
