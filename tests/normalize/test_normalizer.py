"""Normalizers: comparison with naive statistics over whole streams; every observation once, rewards of steps only."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from sb_dqn.accelerate import accelerate
from sb_dqn.devices import HostStage
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.normalize import Moments, NormalizationConfig, Normalizer
from sb_dqn.normalize.moments import PeakMoments
from sb_dqn.types import Batch, Blueprint
from tests.buffers.toy_rows import EVENTS, SPACES, Game, play
from tests.marks import SLOW

CPU = torch.device("cpu")
SPACE = spaces.Dict(SPACES)
GAMMA = 0.9


def make(lanes: int = 1, observations: Any = True, rewards: Any = True, space: Any = SPACE) -> Normalizer:
    return NormalizationConfig(observations, rewards, GAMMA).build(Blueprint(space, spaces.Discrete(5), lanes), CPU)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[list[str]], str, int, int, int]:
    lanes = draw(st.integers(1, 4))
    scripts = [draw(st.lists(st.sampled_from(list(EVENTS)), min_size=1, max_size=6)) for _ in range(lanes)]
    return (
        scripts,
        draw(st.sampled_from(["NEXT_STEP", "SAME_STEP"])),
        draw(st.sampled_from([0, 7])),
        draw(st.integers(1, 30)),
        draw(st.integers(0, 1000)),
    )


def naive_returns(games: list[Game]) -> np.ndarray:
    """Computes the running return at every step of every episode from the logs."""
    returns = []
    for game in games:
        for episode in game.episodes:
            running = 0.0
            for step in episode.steps[1:]:
                running = GAMMA * running + step.reward
                returns.append(running)
    return np.array(returns)


@SLOW
@settings(max_examples=120)
@given(streams())
def test_statistics_match_the_logs(stream: Any) -> None:
    scripts, kind, restart, ticks, seed = stream
    games = [Game(lane, script) for lane, script in enumerate(scripts)]
    normalizer = make(len(games))
    for rows in itertools.islice(play(games, kind, np.random.default_rng(seed), restart), ticks):
        normalizer.update(rows)
    normalizer.commit()
    joints = np.array([s.obs["joints"] for game in games for e in game.episodes for s in e.steps], np.float64)
    obs = {"camera": torch.ones(3, 1, 2, 3, dtype=torch.uint8), "joints": torch.randn(3, 3), "mode": torch.ones(3)}
    normalized = normalizer.observations(obs)
    assert normalized["camera"] is obs["camera"]
    assert normalized["mode"] is obs["mode"]
    expected = (obs["joints"].double().numpy() - joints.mean(0)) / np.sqrt(joints.var(0) + 1e-8)
    np.testing.assert_allclose(normalized["joints"].numpy(), expected.clip(-10, 10), rtol=1e-4, atol=1e-4)
    returns = naive_returns(games)
    deviation = np.sqrt((returns.var() if len(returns) else 1.0) + 1e-8)
    rewards = torch.tensor([-1e9, -0.25, 0.0, 0.5, 1e9])
    expected_rewards = (rewards.double().numpy() / deviation).clip(-10, 10)
    np.testing.assert_allclose(normalizer.rewards(rewards).numpy(), expected_rewards, rtol=1e-5)


@SLOW
@settings(max_examples=40)
@given(streams(), st.integers(0, 29))
def test_a_restored_state_continues_exactly(stream: Any, at: int) -> None:
    scripts, kind, restart, ticks, seed = stream
    games = [Game(lane, script) for lane, script in enumerate(scripts)]
    whole, first, second = (make(len(games)) for _ in range(3))
    for tick, rows in enumerate(itertools.islice(play(games, kind, np.random.default_rng(seed), restart), ticks)):
        if tick == at:
            second.load_state_dict(first.state_dict())
            first = second
        whole.update(rows)
        first.update(rows)
        if tick % 3 == 0:
            whole.commit()
            first.commit()
    assert str(whole.state_dict()) == str(first.state_dict())


def test_statistics_take_effect_when_committed() -> None:
    normalizer = make()
    for rows in itertools.islice(play([Game(0, ["go"])], "NEXT_STEP", np.random.default_rng(0)), 5):
        normalizer.update(rows)
    obs, reward = {"joints": torch.tensor([[1.0, 2.0, 3.0]])}, torch.tensor([0.5])
    assert torch.equal(normalizer.observations(obs)["joints"], obs["joints"])
    assert torch.equal(normalizer.rewards(reward), reward)
    normalizer.begin_rollout()
    assert torch.equal(normalizer.observations(obs)["joints"], obs["joints"])
    normalizer.end_rollout()
    assert torch.equal(normalizer.observations(obs)["joints"], obs["joints"])
    assert not torch.equal(normalizer.rewards(reward), reward)
    normalizer.begin_rollout()
    assert not torch.equal(normalizer.observations(obs)["joints"], obs["joints"])


def test_a_traced_graph_reads_the_committed_statistics() -> None:
    normalizer = make(space=spaces.Box(-1, 1, (3,)))
    run = accelerate(
        lambda x, r: (normalizer.observations({"obs": x})["obs"], normalizer.rewards(r)),
        (torch.zeros(2, 3), torch.zeros(2)),
        "traced",
    )
    for rows in itertools.islice(play([Game(0, ["go"])], "NEXT_STEP", np.random.default_rng(0)), 9):
        rows.slots[0].obs["obs"] = rows.slots[0].obs["joints"]
        normalizer.update(rows)
    normalizer.commit()
    x, r = torch.randn(2, 3), torch.randn(2)
    normalized, scaled = run(x, r)
    assert torch.equal(normalized, normalizer.observations({"obs": x})["obs"])
    assert torch.equal(scaled, normalizer.rewards(r))
    assert not torch.equal(normalized, x)


def test_observations_and_next_observations_of_a_batch_are_normalized() -> None:
    normalizer = make(space=spaces.Box(-1, 1, (1,)), observations={"clip": 2.0})
    normalizer._observations.mean["obs"].fill_(1.0)  # type: ignore[union-attr]  # it is there
    ones = torch.ones(2)
    batch = Batch(
        {"obs": torch.tensor([[1.0], [9.0]])}, ones, ones, ones, {"obs": torch.tensor([[0.0], [-9.0]])}, ones, ones
    )
    normalized = normalizer.batch(batch)
    assert normalized.obs["obs"].tolist() == [[0.0], [2.0]]
    assert normalized.next_obs["obs"].tolist() == [[-1.0], [-2.0]]
    assert normalizer.batch(batch._replace(next_obs={})).next_obs == {}


def test_absent_parts_change_nothing() -> None:
    normalizer = make(observations=False, rewards=False)
    obs, reward = {"joints": torch.ones(1, 3)}, torch.ones(1)
    assert not normalizer.active
    assert normalizer.observations(obs) is obs
    assert normalizer.rewards(reward) is reward
    assert normalizer.state_dict() == {"due": False}


def test_another_number_of_lanes_keeps_the_statistics() -> None:
    first, second = make(2), make(3)
    for rows in itertools.islice(
        play([Game(lane, ["go"]) for lane in range(2)], "NEXT_STEP", np.random.default_rng(0)), 5
    ):
        first.update(rows)
    first.commit()
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.rewards(torch.ones(1)), first.rewards(torch.ones(1)))
    first.set_lanes(3)
    assert first.state_dict()["rewards"]["running"].tolist() == [0, 0, 0]


def test_stacked_frames_share_their_statistics() -> None:
    space = spaces.Box(0, 1, (4, 2, 2))
    normalizer = NormalizationConfig(True, False, GAMMA).build(
        Blueprint(space, spaces.Discrete(2), 1, frame_stack=4), CPU
    )
    assert normalizer.observations({"obs": torch.rand(5, 4, 2, 2)})["obs"].shape == (5, 4, 2, 2)
    assert normalizer.state_dict()["observations"]["moments"]["obs"]["mean"].shape == (1, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observations": "yes"}, "normalize_observations.*'yes'"),
        ({"observations": {"clipp": 1}}, "(?i)did you mean 'clip'"),
        ({"observations": {"clip": 0}}, r"normalize_observations\['clip'\].*0"),
        ({"observations": {"epsilon": -1e-8}}, r"normalize_observations\['epsilon'\].*-1e-08"),
        ({"observations": {"keys": "joints"}}, "must be a list of observation keys or None, got 'joints'. Use None"),
        ({"observations": {"keys": []}}, r"must be a list of observation keys or None, got \[\]"),
        ({"observations": {"keys": ["camera"]}}, r"must be keys of floating-point observations \['joints'\], got 'cam"),
        ({"observations": {"keys": ["joint"]}}, "Did you mean 'joints'"),
        (
            {"observations": True, "space": spaces.Box(0, 255, (1, 8, 8), np.uint8)},
            "must be False without .* Remove it",
        ),
        ({"observations": True, "space": spaces.Discrete(3)}, "must be False without .* Remove it"),
        ({"rewards": 1}, "normalize_rewards.*1"),
        ({"rewards": {"clip": -1.0}}, r"normalize_rewards\['clip'\].*-1.0"),
        ({"rewards": {"epsilon": 0.0}}, r"normalize_rewards\['epsilon'\].*0.0"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(**arguments)


def test_statistics_of_other_keys_are_refused() -> None:
    other = make(space=spaces.Box(-1, 1, (3,)))
    with pytest.raises(
        CheckpointError, match=r"must be of the observation keys \['obs'\], got \['joints'\]. Use the same"
    ):
        other.load_state_dict(make().state_dict())


def test_a_commit_is_one_staged_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would wait for a device until it has finished its queue."""
    space = spaces.Dict({key: spaces.Box(-1.0, 1.0, (3,)) for key in ("arm", "leg", "tail")})
    normalizer = make(space=space, rewards=False)
    send, sends = HostStage.send, []

    def counted(stage: HostStage) -> torch.Tensor:
        sends.append(stage)
        return send(stage)

    monkeypatch.setattr(HostStage, "send", counted)
    copies = Copies()
    with copies:
        normalizer.commit()
    assert len(sends) == copies.count == 1


class Copies(TorchDispatchMode):
    """Counts writes to tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func._schema.name in ("aten::copy_", "aten::fill_")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("rewards", "deviation"), [([8.0, 0.0, 0.0], 8.0 / 5.0), ([0.0, 0.0, 9.0], 4.2426)])
def test_rewards_with_a_peak_have_bounded_returns(rewards: list[float], deviation: float) -> None:
    normalizer = make(observations=False, rewards={"peak": 5.0}).__dict__["_rewards"]
    running = np.array([sum(GAMMA ** (t - s) * rewards[s] for s in range(t + 1)) for t in range(3)])
    normalizer.moments.update(running)
    normalizer.commit()
    assert float(1.0 / normalizer.scale) == pytest.approx(deviation, rel=1e-3)


def test_the_peak_is_saved_and_shared_by_learners() -> None:
    first, second = PeakMoments(), PeakMoments()
    first.update(np.array([1.0, -7.0]))
    second.update(np.array([3.0]))
    second.merge_packed(first.pack())
    assert (second.count, second.peak) == (3, 7.0)
    loaded = PeakMoments()
    loaded.load_state_dict(second.state_dict())
    assert (loaded.peak, float(loaded.variance)) == (7.0, float(second.variance))
    loaded.load_state_dict(Moments().state_dict())  # of a model without a peak
    assert (loaded.count, loaded.peak) == (0, 0.0)
