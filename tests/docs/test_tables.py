"""What the documentation's tables say is what the code says: defaults, switches, settings, keywords."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from sb_dqn.algorithms import ALGORITHMS, DQN, PQN
from sb_dqn.buffers.prioritized_sampler import Prioritized
from sb_dqn.checkpoint.encoding.constructor_arguments import ACTIVATIONS, OPTIMIZERS
from sb_dqn.exploration.config import KEYS, KINDS
from sb_dqn.nn import HadamaxCNN, ImpalaCNN, MinAtarCNN, MultiSkipMLP, NatureCNN, SimBa
from sb_dqn.nn.layers.linear import Noisy
from sb_dqn.objectives.bootstrap import Munchausen
from sb_dqn.policies import OPTIMIZER_KEYS, QPolicy
from sb_dqn.runs.settings_syntax import constructor_defaults
from sb_dqn.schedules import Linear
from tests.docs.pages import FOLDER, QUOTED, ROOT, rows_of, section_of, table_of
from tests.tiny import POLICY_LEARNERS, Q_AGENTS

FILES = {
    "DQN": "dqn", "DoubleDQN": "double-dqn", "DuelingDQN": "dueling-dqn", "NoisyDQN": "noisy-dqn",
    "NStepDQN": "n-step-dqn", "PERDQN": "per-dqn", "MunchausenDQN": "munchausen-dqn", "CategoricalDQN": "c51",
    "QRDQN": "qr-dqn", "IQN": "iqn", "FQF": "fqf", "Rainbow": "rainbow", "DataEfficientRainbow": "data-efficient-rainbow",
    "BTR": "btr", "PQN": "pqn", "A2C": "a2c", "PPO": "ppo", "SAC": "sac",
    "R2D2": "r2d2", "REINFORCE": "reinforce", "VPG": "vpg",
}  # fmt: skip
SECTIONS = ["Idea", "Equation", "Usage", "Defaults", "When to use it", "Results", "References"]
SWITCHES = ("double_q", "dueling", "noisy", "n_steps", "prioritized_replay", "munchausen")
EXTRACTORS = (NatureCNN, MinAtarCNN, ImpalaCNN, HadamaxCNN, SimBa, MultiSkipMLP)


def value_of(cell: str) -> Any:
    """What a cell such as `{"beta": Linear(0.4, 1.0)}`, in backticks, says."""
    return eval(cell.strip("`"), {"Linear": Linear, "__builtins__": {}})


def shown(page: str, heading: str) -> dict[str, Any]:
    return {row[0].strip("`"): value_of(row[1]) for row in table_of(page, heading)}


def test_every_algorithm_has_a_page() -> None:
    assert FILES.keys() == ALGORITHMS.keys()
    assert {path.stem for path in (FOLDER / "algorithms").glob("*.md")} == {*FILES.values(), "index", "combinations"}
    nav = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    assert [name for name in FILES.values() if f": algorithms/{name}.md" not in nav] == []


def test_dqns_table_has_every_keyword_with_its_default() -> None:
    assert shown("algorithms/dqn.md", "## Defaults") == constructor_defaults(DQN)


@pytest.mark.parametrize("name", POLICY_LEARNERS)
def test_a_policy_learners_table_has_every_keyword_with_its_default(name: str) -> None:
    assert shown(f"algorithms/{FILES[name]}.md", "## Defaults") == constructor_defaults(ALGORITHMS[name])


@pytest.mark.parametrize("name", sorted(Q_AGENTS.keys() - {"DQN"}))
def test_a_variants_table_has_what_differs_from_dqn(name: str) -> None:
    """It may repeat what is DQN's again, though not its parent's."""
    common, own = constructor_defaults(DQN), constructor_defaults(ALGORITHMS[name])
    differs = {key for key, value in own.items() if key not in common or common[key] != value}
    table = shown(f"algorithms/{FILES[name]}.md", "## Defaults")
    assert {key: own.get(key, "no such keyword") for key in table} == table
    assert differs - table.keys() == set()


@pytest.mark.parametrize("page", FILES.values())
def test_every_algorithm_page_has_the_same_sections(page: str) -> None:
    text = (FOLDER / "algorithms" / f"{page}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    assert re.search(r"arxiv\.org|doi\.org", text)
    assert "```math\n" in text or "equations are Rainbow's" in text
    assert "```python\n" in text
    assert "\nsb-dqn benchmark " in text


def test_the_overview_says_which_switches_are_on() -> None:
    rows = {QUOTED.sub("", row[0]).split("]")[0].strip("[ "): row for row in _overview()}
    assert rows.keys() == Q_AGENTS.keys()
    for name, row in rows.items():
        defaults = constructor_defaults(ALGORITHMS[name])
        assert row[0].split("(")[1].split(")")[0] == f"{FILES[name]}.md"
        for switch, cell in zip(SWITCHES, row[2:], strict=True):
            value = None if name == "PQN" else defaults[switch]
            expected = str(value) if switch == "n_steps" and value else "yes" if value else "–"
            assert cell == expected, (name, switch)


def test_the_overview_has_the_other_algorithms() -> None:
    rows = table_of("algorithms/index.md", "## Policy-gradient and actor-critic methods")
    assert {row[0].split("]")[0].strip("[ ") for row in rows} == POLICY_LEARNERS.keys()
    assert [name for name, row in zip(POLICY_LEARNERS, rows, strict=True) if f"({FILES[name]}.md)" not in row[0]] == []


def _overview() -> list[list[str]]:
    text = (FOLDER / "algorithms" / "index.md").read_text(encoding="utf-8").split("\n## ")[0]
    return rows_of(text)


def test_the_readme_lists_every_algorithm() -> None:
    rows = rows_of(section_of(ROOT / "README.md", "## Algorithms"))
    assert {QUOTED.findall(row[0])[0] for row in rows} == ALGORITHMS.keys()
    for row in rows:
        assert f"algorithms/{FILES[QUOTED.findall(row[0])[0]]}.md" in row[0]


@pytest.mark.parametrize(
    ("heading", "settings"),
    [("### noisy", Noisy), ("### prioritized_replay", Prioritized), ("### munchausen", Munchausen)],
)
def test_the_settings_of_a_switch(heading: str, settings: Any) -> None:
    expected = {field.name: field.default for field in fields(settings) if field.default is not MISSING}
    assert shown("algorithms/dqn.md", heading) == expected


def test_the_settings_of_exploration() -> None:
    rows = table_of("exploration.md", "## Settings")
    for kind in KINDS:
        assert {row[0].strip("`") for row in rows if kind in row[1].split(", ")} == set(KEYS[kind]), kind
    named = [row[0].strip("`").strip('"') for row in table_of("exploration.md", "## Kinds")]
    assert set(KINDS) <= set(named)


def test_policy_kwargs() -> None:
    rows = {row[0].strip("`"): row[1].strip("`") for row in table_of("networks.md", "## policy_kwargs")}
    parameters = inspect.signature(QPolicy.__init__).parameters
    own = [
        name
        for name in parameters
        if name not in ("self", "observation_space", "action_space", "config", "recurrent_config")
    ]
    assert list(rows) == [*own, *OPTIMIZER_KEYS]
    for name in own:
        default = parameters[name].default
        assert rows[name] == (default.__name__ if isinstance(default, type) else repr(default)), name


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_keywords_of_the_extractors(extractor: Any) -> None:
    (row,) = (row for row in table_of("networks.md", "## Extractors") if row[0] == f"`{extractor.__name__}`")
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(extractor.__init__).parameters.items()
        if name not in ("self", "observation_space", "normalized_image")
    }
    named = dict(text.split("=", 1) for text in QUOTED.findall(row[1]) if "=" in text)
    given = {name: ast.literal_eval(text) for name, text in named.items()}
    assert given.items() <= defaults.items()
    if "the others of" not in row[1]:
        assert given.keys() == defaults.keys()


def test_what_pqn_does_not_take_is_named_with_the_reason() -> None:
    missing = constructor_defaults(DQN).keys() - constructor_defaults(PQN).keys()
    section = section_of(FOLDER / "algorithms" / "combinations.md", "## PQN")
    prose = section.split("```")[0]
    assert {name for name in QUOTED.findall(prose) if name in constructor_defaults(DQN)} == missing


@pytest.mark.parametrize("page", sorted(FOLDER.rglob("*.md")), ids=lambda page: page.stem)
def test_no_table_is_broken_in_two(page: Path) -> None:
    lines = ["", *page.read_text(encoding="utf-8").splitlines(), ""]
    heads = [n for n, line in enumerate(lines) if line.startswith("|") and not lines[n - 1].startswith("|")]
    assert [lines[n] for n in heads if not lines[n + 1].startswith("|--")] == []


def test_the_page_on_networks_names_every_class_that_may_be_given_by_name() -> None:
    text = (FOLDER / "networks.md").read_text(encoding="utf-8").replace("\n", " ")
    for kind, classes in (("activations of `torch.nn`", ACTIVATIONS), ("optimizers of `torch.optim`", OPTIMIZERS)):
        listed = text.partition(f"of {kind} (")[2].partition(")")[0]
        assert listed.split(", ") == [cls.__name__ for cls in classes]
