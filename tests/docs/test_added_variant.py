"""The variant that the documentation shows, as a reader's own file: found, built, trained, saved and loaded from outside."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import sb_dqn
from sb_dqn.algorithms import DQN
from sb_dqn.algorithms.dqn import ReturnModel
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.scalar import ILLEGAL, Scalar, ScalarValue
from sb_dqn.objectives.bootstrap import Bootstrap
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.types import Batch
from tests.marks import SLOW
from tests.tiny import Tiny, lanes

PAGE = Path(__file__).parents[2] / "docs" / "pages" / "adding-a-variant.md"
NAME = "advantage_learning"
LONGEST = 60
SMALL: dict[str, Any] = {"batch_size": 8, "buffer_size": 500, "learning_starts": 30, "seed": 0}
EVERYTHING = {
    "double_q": True, "dueling": True, "noisy": True, "n_steps": 3, "prioritized_replay": True, "munchausen": True,
    "precision": "bf16",
}  # fmt: skip


def source() -> str:
    """The block that the page calls the whole variant."""
    section = PAGE.read_text(encoding="utf-8").split("\n## The whole variant\n")[1].split("\n## ")[0]
    found = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(found) == 1
    return str(found[0])


@pytest.fixture(scope="module")
def variant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The page's file as a module of somebody else's folder."""
    path = tmp_path_factory.mktemp("elsewhere") / f"{NAME}.py"
    path.write_text(source(), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[NAME]


def test_it_is_short_and_lies_outside_of_the_package(variant: ModuleType) -> None:
    assert len(source().splitlines()) <= LONGEST
    package = Path(str(sb_dqn.__file__)).parent
    assert package not in Path(str(variant.__file__)).parents
    mentioned = [path for path in package.rglob("*.py") if "AdvantageLearning" in path.read_text(encoding="utf-8")]
    assert mentioned == []


@SLOW
@pytest.mark.parametrize(("count", "switches"), [(4, {}), (1, EVERYTHING)], ids=["plain", "everything"])
def test_it_learns_saves_and_loads(variant: ModuleType, tmp_path: Path, count: int, switches: dict[str, Any]) -> None:
    model = variant.AdvantageLearningDQN("MlpPolicy", lanes(count), alpha=0.7, **switches, **SMALL)
    before = model.learner.flat.clone()
    model.learn(300)
    assert model._n_updates >= 60
    assert not torch.equal(model.learner.flat, before)
    assert bool(model.learner.finite)

    model.save(tmp_path / "own")
    observations = np.random.default_rng(0).uniform(0, 1, (16, *model.observation_space.shape)).astype(np.float32)
    expected, _ = model.predict(observations, deterministic=True)
    for parent in (variant.AdvantageLearningDQN, DQN):  # a parent finds its subclass by name
        loaded: Any = parent.load(tmp_path / "own", env=lanes(count))
        assert type(loaded) is variant.AdvantageLearningDQN
        assert loaded.learner.objective.alpha == 0.7
        np.testing.assert_array_equal(loaded.predict(observations, deterministic=True)[0], expected)
    if not switches:  # once is enough: a trace takes seconds
        assert loaded.learn(100, reset_num_timesteps=False)._n_updates > model._n_updates


@pytest.mark.parametrize("wrong", [{"alpha": 1.0}, {"alpha": -0.1}, {"alpha": "much"}, {"alfa": 0.5}, {"loss": "mse"}])
def test_its_keywords_are_checked_like_those_of_the_house(variant: ModuleType, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        variant.AdvantageLearningDQN("MlpPolicy", Tiny(), **wrong, **SMALL)


class Table:
    """A net whose values are known: those of observation i are row i."""

    def __init__(self, rows: list[list[float]]) -> None:
        self.rows = torch.tensor(rows)

    def __call__(self, obs: dict[str, torch.Tensor], mask: torch.Tensor | None) -> Any:
        q = self.rows[obs["obs"].long()]
        return ScalarValue(q if mask is None else q.masked_fill(~mask, ILLEGAL))


@pytest.mark.parametrize(("double", "next_value"), [(False, 8.0), (True, 6.0)])
def test_its_target_by_hand(variant: ModuleType, double: bool, next_value: float) -> None:
    """Values of illegal actions (99) and of the wrong net (66, 77) would show."""
    online = Table([[2.0, 77.0, 77.0], [3.0, 5.0, 99.0]])
    target = Table([[1.0, 66.0, 4.0], [8.0, 6.0, 99.0]])
    batch = Batch(
        obs={"obs": torch.tensor([0])}, action=torch.tensor([0]), return_=torch.tensor([1.5]),
        discount=torch.tensor([0.5]), next_obs={"obs": torch.tensor([1])}, weight=torch.ones(1),
        place=torch.zeros(2, 1, dtype=torch.int64), mask=torch.tensor([[True, False, True]]),
        next_mask=torch.tensor([[True, True, False]]),
    )  # fmt: skip
    loss, facts = variant.AdvantageLearning(Bootstrap(double), 0.9)(online, target, batch)
    error = abs(2.0 - (1.5 + 0.5 * next_value - 0.9 * (4.0 - 1.0)))
    torch.testing.assert_close(facts["priority"], torch.tensor([error]))
    torch.testing.assert_close(loss, torch.tensor([0.5 * error**2 if error < 1 else error - 0.5]))


# -- what a variant of one's own may get wrong


def own(objective: Any, **settings: Any) -> DQN:
    class Own(DQN):
        def __init__(self, policy: Any, env: Any, **kwargs: Any) -> None:
            super().__init__(policy, env, return_model=ReturnModel(Scalar(), objective), **kwargs)

    return Own("MlpPolicy", Tiny(), **{**SMALL, **settings})


class Changed(QLearning):
    """Q-learning whose answer is something else."""

    def __init__(self, bootstrap: Bootstrap, change: Any = None) -> None:
        super().__init__(bootstrap)
        self.change = change

    def __call__(self, online: Any, target: Any, batch: Batch) -> Any:
        return self.change(*super().__call__(online, target, batch))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda loss, facts: loss, "Changed must return the loss of each row .* got Tensor"),
        (lambda loss, facts: (loss, facts, 3), "Changed must return the loss of each row .* got tuple"),
        (lambda loss, facts: (loss, None), "must return the loss of each row"),
        (
            lambda loss, facts: (loss, {}),
            r"must return every extra in its reports, got \[\] without \['q_mean', 'td_error'\]",
        ),
        (
            lambda loss, facts: (loss.mean(), facts),
            r"loss of Changed must have shape \[8\], got \[\]",
        ),
        (
            lambda loss, facts: (loss, facts | {"priority": loss[:3]}),
            r"priority of Changed must have shape \[8\], got \[3\]",
        ),
    ],
)
@pytest.mark.parametrize("prioritized", [False, True])
def test_what_an_objective_must_answer(change: Any, message: str, prioritized: bool) -> None:
    model = own(partial(Changed, change=change), prioritized_replay=prioritized)
    with pytest.raises(ConfigurationError, match=message):
        model.learn(100)


def test_an_objective_must_say_what_it_reports() -> None:
    with pytest.raises(ConfigurationError, match="function must have an attribute `reports`"):
        own(lambda bootstrap: lambda online, target, batch: (batch.weight, {}))


@SLOW
@pytest.mark.parametrize(
    "leave",
    [
        lambda loss: loss.detach().numpy().max(),
        lambda loss: loss.tolist()[0],
        lambda loss: np.asarray(loss.detach())[0],
    ],
)
def test_what_leaves_torch_is_not_read_once_for_all(leave: Any, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[float] = []

    def look(loss: torch.Tensor, facts: Any) -> Any:
        seen.append(float(leave(loss)))
        return loss, facts

    model = own(partial(Changed, change=look)).learn(100)
    assert len(set(seen)) > model._n_updates // 2
    assert "running without it" in capsys.readouterr().err


def test_model_files_record_the_keywords_of_every_subclass(variant: ModuleType, tmp_path: Path) -> None:
    class Twice(variant.AdvantageLearningDQN):  # type: ignore[misc,name-defined]  # of a module made at run time
        def __init__(self, policy: Any, env: Any, *, twice: bool = False, **kwargs: Any) -> None:
            super().__init__(policy, env, **kwargs)

    Twice("MlpPolicy", Tiny(), twice=True, alpha=0.3, **SMALL).save(tmp_path / "own")
    loaded = DQN.load(tmp_path / "own")
    assert loaded.arguments["twice"] is True
    assert loaded.arguments["alpha"] == 0.3
    with pytest.raises(
        ConfigurationError, match="arguments of Twice must be among .* got 'alhpa'. .*Did you mean 'alpha'"
    ):
        Twice("MlpPolicy", Tiny(), alhpa=0.3)


def test_a_subclass_may_set_a_keyword_of_its_parent(tmp_path: Path) -> None:
    class Short(DQN):
        def __init__(self, policy: Any, env: Any, **kwargs: Any) -> None:
            super().__init__(policy, env, gamma=0.5, **kwargs)

    Short("MlpPolicy", Tiny(), **SMALL).save(tmp_path / "short")
    assert DQN.load(tmp_path / "short").replay_config.gamma == 0.5
