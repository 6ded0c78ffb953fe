"""Keywords that are written once reach the signature and the help of every class."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_type_hints

import pytest

from sb_dqn.algorithms import ALGORITHMS, DQN, PPO, DoubleDQN
from sb_dqn.algorithms.c51 import C51Keywords, CategoricalDQN
from sb_dqn.algorithms.dqn import DQNKeywords
from sb_dqn.algorithms.iqn import IQN, IQNKeywords
from sb_dqn.core.arguments import constructor_arguments
from sb_dqn.core.keywords import OffPolicyKeywords, with_defaults


@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_describes_every_keyword_once(name: str) -> None:
    help_text = inspect.getdoc(ALGORITHMS[name]) or ""
    entries = re.findall(
        r"^    (\w+(?:, \w+)*): \S", help_text.partition("\nArgs:\n")[2].partition("\n\n")[0], re.MULTILINE
    )
    described = [each for entry in entries for each in entry.split(", ")]
    assert sorted(described) == sorted({"policy", "env", *inspect.signature(ALGORITHMS[name]).parameters})


@pytest.mark.parametrize(("cls", "kind"), [(DQN, DQNKeywords), (CategoricalDQN, C51Keywords), (IQN, IQNKeywords)])
def test_the_keywords_of_variants_are_those_of_their_parent(cls: Any, kind: Any) -> None:
    """`IQN` keeps the numbers of fractions out, which BTR sets itself."""
    written = inspect.get_annotations(cls.__init__)
    own = {name: written[name] for name in constructor_arguments(cls) if name in written}
    own = {name: hint for name, hint in own.items() if not name.endswith("_taus")}
    declared = {
        name: each.__forward_arg__
        for base in kind.__mro__
        for name, each in vars(base).get("__annotations__", {}).items()
    }
    assert {name: declared.get(name) for name in own} == own
    assert get_type_hints(kind).keys() >= get_type_hints(OffPolicyKeywords).keys()


def test_defaults_of_a_class_replace_those_of_its_parents() -> None:
    class Patient(DoubleDQN):
        """Waits longer."""

        defaults = {"learning_starts": 7}  # noqa: RUF012

    assert inspect.signature(Patient).parameters["learning_starts"].default == 7
    model = Patient("MlpPolicy", "CartPole-v1", gamma=0.5)
    assert [model.arguments[name] for name in ("double_q", "learning_starts", "gamma")] == [True, 7, 0.5]
    assert Patient("MlpPolicy", "CartPole-v1", double_q=False).arguments["double_q"] is False
    assert inspect.signature(DoubleDQN).parameters["learning_starts"].default == 100


def test_what_is_given_wins_over_the_shared_default() -> None:
    given = with_defaults(OffPolicyKeywords, {"verbose": 1})
    assert (given["verbose"], given["stats_window_size"]) == (1, 100)
    assert PPO("MlpPolicy", "CartPole-v1", stats_window_size=3).statistics.window == 3
