"""Every variant through a file: nothing is lost, parents load their children, and arguments may be changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn.algorithms import (
    ALGORITHMS,
    BTR,
    C51,
    DQN,
    FQF,
    IQN,
    PQN,
    QRDQN,
    CategoricalDQN,
    DataEfficientRainbow,
    Rainbow,
)
from sb_dqn.buffers import Prioritized, PrioritizedSampler
from sb_dqn.errors import CheckpointError, ConfigurationError, with_article
from sb_dqn.nn.layers.linear import Noisy
from sb_dqn.objectives.bootstrap import Munchausen
from sb_dqn.schedules import Linear
from tests.invariants import check_valid
from tests.marks import SLOW, a_few, first_few
from tests.tiny import Q_AGENTS, SMALL_CNN, Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

OBS = {"obs": torch.from_numpy(np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32))}
SOON: dict[str, dict[str, Any]] = {
    "DataEfficientRainbow": {"train_freq": 4},
    "BTR": {"train_freq": 4, "exploration": {"schedule": Linear(1.0, 0.01, steps=100), "off_after": 200}},
    "FQF": {"fraction_learning_rate": 1e-3},
}


def learned(algorithm: Any, **kwargs: Any) -> Any:
    """A small model after some updates."""
    model = quick(algorithm=algorithm, **{**SOON.get(algorithm.__name__, {}), **kwargs}).learn(60)
    assert model._n_updates > 5
    return model


def loaded(model: Any, tmp_path: Path, **kwargs: Any) -> Any:
    """The same model from a file, by the class that all but one have in common."""
    model.save(tmp_path / "model")
    return (PQN if isinstance(model, PQN) else DQN).load(tmp_path / "model", device="cpu", **kwargs)


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Numbers, texts and lists of numbers of a nested state, by path."""
    if isinstance(tree, torch.Tensor):
        return {path: (tree.dtype, tree.tolist())}
    if isinstance(tree, dict):
        return {name: leaf for key, part in tree.items() for name, leaf in leaves(part, f"{path}/{key}").items()}
    if isinstance(tree, (list, tuple)):
        return {name: leaf for i, part in enumerate(tree) for name, leaf in leaves(part, f"{path}/{i}").items()}
    return {path: tree.tolist() if isinstance(tree, np.ndarray) else tree}


def outputs(model: Any) -> dict[str, Any]:
    """All that the net says of some observations, the distribution included."""
    with torch.no_grad():
        if model.policy.recurrent:
            return {"q": model.policy.values(OBS).tolist()}
        value = model.policy.q_net(OBS)
    return {"q": value.q.tolist(), **{name: leaves(part) for name, part in value._asdict().items()}}


@pytest.mark.parametrize("name", a_few(Q_AGENTS, "DQN", "Rainbow", "FQF", "PQN"))
def test_everything_comes_back(name: str, tmp_path: Path) -> None:
    model = learned(ALGORITHMS[name], exploration_fraction=0.5)
    again = loaded(model, tmp_path)
    assert type(again) is ALGORITHMS[name]
    assert again.arguments == model.arguments
    mine, theirs = (
        {part: leaves(state.state_dict()) for part, state in m.saved_parts().items()} for m in (model, again)
    )
    assert mine == theirs
    assert {"learner", "exploration", "counters", "rng"} <= mine.keys()
    assert leaves(model.policy.state_dict()) == leaves(again.policy.state_dict())
    assert outputs(model) == outputs(again)


def test_the_second_optimizer_comes_back(tmp_path: Path) -> None:
    model = learned(FQF)
    again = loaded(model, tmp_path)
    mine, theirs = (list(m.learner.optimizer_step.fraction_optimizer.state.values()) for m in (model, again))
    assert len(mine) == 2  # weight and bias of the proposal
    assert mine[0]["step"] == theirs[0]["step"] == model._n_updates
    assert mine[0]["square_avg"].count_nonzero() > 0
    assert all(torch.equal(one["square_avg"], other["square_avg"]) for one, other in zip(mine, theirs, strict=True))
    before = again.learner.flat[again.learner.optimizer_step.fractions].clone()
    again.set_env(Tiny())
    again.learn(60)
    assert not torch.equal(again.learner.flat[again.learner.optimizer_step.fractions], before)


@pytest.mark.parametrize("name", ["NoisyDQN", "IQN", "Rainbow", "BTR"])
def test_random_streams_go_on(name: str, tmp_path: Path) -> None:
    model = learned(ALGORITHMS[name])
    again = loaded(model, tmp_path)
    for one, other in zip(model.learner.noises, again.learner.noises, strict=True):
        one.renew(model.rng.noise)
        other.renew(again.rng.noise)
        assert torch.equal(one.normal, other.normal)
        assert torch.equal(one.uniform, other.uniform)
        assert one.normal.numel() + one.uniform.numel() > 0


def test_priorities_go_with_the_replay(tmp_path: Path) -> None:
    model = quick(lanes(2), algorithm=Rainbow).learn(100)
    model.save_replay_buffer(tmp_path / "rows")
    again = loaded(model, tmp_path, env=lanes(2))
    again.load_replay_buffer(tmp_path / "rows")
    mine, theirs = model.replay.sampler, again.replay.sampler
    assert isinstance(mine, PrioritizedSampler)
    for replay in (model.replay, again.replay):
        replay.refresh()
    assert len(mine.tree.leaves.unique()) > 10
    assert torch.equal(mine.tree.leaves, theirs.tree.leaves)
    assert torch.equal(mine.largest, theirs.largest)
    assert check_valid(theirs) == (True, "valid")
    again.learn(40)
    assert again._n_updates > model._n_updates


# -- parents and children


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        (DQN, Rainbow),
        (CategoricalDQN, DataEfficientRainbow),
        (C51, Rainbow),
        (IQN, BTR),
        (Rainbow, DataEfficientRainbow),
    ],
)
def test_parents_load_their_children(parent: Any, child: Any, tmp_path: Path) -> None:
    learned(child).save(tmp_path / "model")
    assert type(parent.load(tmp_path / "model")) is child


@pytest.mark.parametrize(
    ("other", "saved"), [(QRDQN, IQN), (Rainbow, CategoricalDQN), (PQN, DQN), (DQN, PQN), (BTR, Rainbow)]
)
def test_others_do_not(other: Any, saved: Any, tmp_path: Path) -> None:
    learned(saved).save(tmp_path / "model")
    name = saved.__name__
    message = f"must hold {with_article(other.__name__)}, got {with_article(name)}. Load it with {name}.load"
    with pytest.raises(CheckpointError, match=message):
        other.load(tmp_path / "model")


# -- changed arguments


@pytest.fixture(scope="module")
def rainbow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Rainbow, Path]:
    """A model after some updates, and its file."""
    model, path = learned(Rainbow), tmp_path_factory.mktemp("rainbow") / "model"
    model.save(path)
    return model, path


@pytest.mark.parametrize(
    "changes",
    first_few([
        {"n_steps": 5}, {"prioritized_replay": False}, {"prioritized_replay": {"alpha": 0.5, "beta": 1.0}}, {"munchausen": True},
        {"double_q": False}, {"v_max": 20}, {"priority": "cross_entropy"}, {"noisy": "independent"}, {"gamma": 0.5},
        {"exploration": "boltzmann"}, {"evaluation_eps": 0.5}, {"precision": "bf16"}, {"batch_size": 3},
        {"policy_kwargs": {"net_arch": [8], "optimizer_class": torch.optim.SGD}},
    ], 5),
    ids=str,
)  # fmt: skip
def test_what_leaves_the_nets_as_they_are_may_be_changed(
    changes: dict[str, Any], rainbow: tuple[Rainbow, Path]
) -> None:
    model, path = rainbow
    again: Any = DQN.load(path, env=Tiny(), device="cpu", **changes)
    assert {name: again.arguments[name] for name in changes} == changes
    assert torch.equal(again.learner.flat, model.learner.flat)
    again.learn(60)
    assert again._n_updates > model._n_updates
    assert torch.isfinite(again.learner.flat).all()


@pytest.mark.parametrize(
    "changes", [{"noisy": False}, {"dueling": False}, {"n_atoms": 11}, {"policy_kwargs": {"net_arch": [9]}}], ids=str
)
def test_what_changes_the_nets_is_refused(changes: dict[str, Any], rainbow: tuple[Rainbow, Path]) -> None:
    with pytest.raises(ConfigurationError, match="parameters must fit the networks of this policy"):
        DQN.load(rainbow[1], device="cpu", **changes)


def test_attitude_to_risk_may_be_changed(tmp_path: Path) -> None:
    model = learned(IQN)
    careful = loaded(model, tmp_path, risk="cvar 0.25")
    assert outputs(model) == outputs(careful)  # what was learned is the same
    assert not torch.equal(model.policy.values(OBS), careful.policy.values(OBS))


def test_how_to_step_is_what_the_constructor_says(tmp_path: Path) -> None:
    settings = {"net_arch": [8], "optimizer_kwargs": {"betas": (0.8, 0.9), "eps": 1e-3}}
    model = learned(DQN)
    again = loaded(model, tmp_path, policy_kwargs=settings)
    assert again.learner.optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    assert again.learner.optimizer.param_groups[0]["eps"] == 1e-3
    (mine,), (theirs,) = (m.learner.optimizer.state.values() for m in (model, again))
    assert torch.equal(mine["exp_avg"], theirs["exp_avg"])
    assert mine["step"] == theirs["step"] == model._n_updates


def test_another_optimizer_begins_anew(tmp_path: Path) -> None:
    again = loaded(learned(DQN), tmp_path, policy_kwargs={"net_arch": [8], "optimizer_class": torch.optim.RMSprop})
    assert isinstance(again.learner.optimizer, torch.optim.RMSprop)
    assert not again.learner.optimizer.state


def test_the_rate_of_the_fractions_may_be_changed(tmp_path: Path) -> None:
    again = loaded(learned(FQF), tmp_path, fraction_learning_rate=0.5)
    assert again.learner.optimizer_step.fraction_optimizer.param_groups[0]["lr"] == 0.5


# -- arguments


@pytest.mark.parametrize(
    "given",
    [
        {"munchausen": Munchausen(0.5)},
        {"noisy": Noisy("independent", 0.1)},
        {"prioritized_replay": Prioritized(0.5, beta=Linear(0.2, 1.0))},
        {"prioritized_replay": {"alpha": 0.5, "beta": Linear(0.2, 1.0)}},
        {"exploration": {"schedule": [(0, 1.0), (50, 0.1)], "ladder": "log", "ladder_min": 0.01}},
        {"exploration": {"kind": "boltzmann", "temperature": "linear 1 0.1"}},
    ],
    ids=str,
)
def test_settings_come_back_without_trust(given: dict[str, Any], tmp_path: Path) -> None:
    again = loaded(learned(DQN, **given), tmp_path)
    assert {name: again.arguments[name] for name in given} == given


@SLOW
@pytest.mark.parametrize("algorithm", [Rainbow, DataEfficientRainbow, BTR])
def test_nets_of_the_papers_come_back(algorithm: Any, tmp_path: Path) -> None:
    game = Tiny()
    game.observation_space = spaces.Box(0, 255, (1, 44, 44), np.uint8)
    small = {} if algorithm is not Rainbow else {"policy_kwargs": {"features_extractor_kwargs": SMALL_CNN}}
    kwargs = {**small, **SOON.get(algorithm.__name__, {}), "learning_starts": 10, "batch_size": 2, "buffer_size": 100}
    model = algorithm("CnnPolicy", game, **{"policy_kwargs": None, **kwargs}, seed=0, device="cpu").learn(16)
    assert model._n_updates > 0
    again = loaded(model, tmp_path)
    assert torch.equal(again.learner.flat, model.learner.flat)
    assert repr(again.policy) == repr(model.policy)
