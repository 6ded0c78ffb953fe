"""What a release repeats is said alike: versions, supported Pythons, links of the project."""

from __future__ import annotations

import configparser

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


def test_every_supported_python_is_tested_on_every_system() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    matrix = workflow["jobs"]["tests"]["strategy"]["matrix"]
    classifiers = setup_cfg()["metadata"]["classifiers"].split("\n")
    pythons = [line.rpartition(" ")[2] for line in classifiers if "Python :: 3." in line]
    assert matrix["python"] == pythons
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    systems = [line for line in classifiers if line.startswith("Operating System")]
    assert len(systems) == len(matrix["os"])
