"""Groups of lanes that step in turn: the order of events, the rows they store, resume at any tick, and errors."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb_dqn import DQN, R2D2, SAC
from sb_dqn.actors import OverlappedActors, as_actors
from sb_dqn.actors.overlapped import LaneGroup, OverlappedCollector, among_all_lanes
from sb_dqn.core.construction import open_training_env
from sb_dqn.envs import make_atari_env
from sb_dqn.errors import CheckpointError, ConfigurationError, EnvironmentFault
from tests.actors.games import Ledger, Masked, check_rows
from tests.actors.test_overlapped import SaveAt
from tests.continuing import differences
from tests.invariants import check_valid
from tests.marks import FULL, SLOW, a_few
from tests.toy_actors import toy_actor, toy_control
from tests.toys import toy_policy, toy_stream

SMALL: dict[str, Any] = {
    "policy": "MlpPolicy", "learning_starts": 20, "batch_size": 8, "buffer_size": 2_000, "seed": 5,
    "policy_kwargs": {"net_arch": [8]}, "device": "cpu",
}  # fmt: skip
RECURRENT: dict[str, Any] = {
    "policy": "MlpLstmPolicy", "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 4}, "batch_T": 4, "warmup_T": 4, "batch_B": 4,
    "store_rnn_state_interval": 4,
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("eagerly")


def test_a_group_is_chosen_for_while_the_other_steps() -> None:
    events: list[str] = []

    class Watched:
        num_envs = 4

    def group(number: int) -> LaneGroup:
        _, stream = toy_stream("lanes", 2)
        step = stream.step

        def stepped(action: Any) -> Any:
            while f"choose {1 - number}" not in events:  # the other group's choice needs no end of this step
                time.sleep(0.001)
            return step(action)

        stream.step = stepped  # type: ignore[method-assign]

        actor = toy_actor(stream, lambda rows: events.append(f"choose {number}"))
        return LaneGroup(actor, slice(2 * number, 2 * number + 2))

    ticks = OverlappedCollector(Watched(), [group(0), group(1)], toy_control(3)).rows()
    first, second, third = next(ticks), next(ticks), next(ticks)
    assert events == ["choose 0", "choose 1", "choose 0"]
    assert [rows.slots[-1].valid.tolist() for rows in (first, second)] == [
        [True] * 2 + [False] * 2,
        [False] * 2 + [True] * 2,
    ]
    assert first.action is second.action is None
    assert third.action is not None
    assert third.departed is not None
    assert third.departed.tolist() == [True, True, False, False]
    assert third.stepped.tolist() == [True, True, False, False]
    assert third.steps == 2


def test_a_tick_of_a_group_leaves_the_other_lanes_empty() -> None:
    _, stream = toy_stream("lanes", 2)
    rows = stream.step(np.asarray(toy_policy(stream.begin(1))))
    rows.extra = {"q": np.array([4.0, 5.0])}
    rows.make_infos = lambda: [{"a": 1}, {"b": 2}]
    wide = among_all_lanes(rows, slice(1, 3), 4)
    assert wide.slots[-1].obs["obs"][1:3].tolist() == rows.slots[-1].obs["obs"].tolist()
    assert wide.slots[-1].valid.tolist() == [False, True, True, False]
    assert wide.extra["q"].tolist() == [0.0, 4.0, 5.0, 0.0]
    assert wide.make_infos() == [{}, {"a": 1}, {"b": 2}, {}]
    restarted = among_all_lanes(stream.begin(2), slice(1, 3), 4).restarted()
    assert restarted is not None
    assert restarted.tolist() == [False, True, True, False]


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "priorities, normalized": (
        DQN,
        Ledger,
        {"prioritized_replay": {"initial": "td_error"}, "normalize_observations": True},
    ),
    "ladder, n steps": (
        DQN,
        Ledger,
        {"exploration": {"kind": "epsilon", "ladder": "apex"}, "exploration_final_eps": 0.4, "n_steps": 3},
    ),
    "masked branches": (DQN, Masked, {"action_mask": "info"}),
    "recurrent": (R2D2, Ledger, RECURRENT),
    "SAC": (SAC, Ledger, {}),
    "noisy": (DQN, Ledger, {"noisy": True}),
}


@SLOW
@pytest.mark.parametrize("case", a_few(CASES, "priorities, normalized", "masked branches"))
def test_a_run_depends_on_the_seed_alone_and_resumes_at_any_tick(case: str, tmp_path: Path) -> None:
    kind, env, settings = CASES[case]
    kwargs = {**SMALL, **settings, "actors": OverlappedActors(2, lanes=2)}
    if kind is R2D2:
        del kwargs["batch_size"]
    uneven = [partial(env, pause=0.0005 * lane) for lane in range(4)] if env is Ledger else env
    whole = kind(env=uneven, **kwargs).learn(160, SaveAt(tmp_path))
    undisturbed = kind(env=env, **kwargs).learn(160)
    assert [name for name in differences(whole, undisturbed) if not name.startswith("plain data")] == []
    count, cuts = check_rows(whole.replay.ring) if kind is DQN and env is Ledger else (150, 0)
    assert count >= 150
    assert cuts == 0
    files = sorted(tmp_path.glob("*.zip"))
    assert len(files) >= 6  # a tick holds the two lanes of a group
    for file in files[:6:2]:
        assert differences(whole, kind.load(file, env=uneven).resume()) == []


@FULL
def test_stacks_of_frames_are_those_of_the_group(tmp_path: Path) -> None:
    kwargs = {
        **SMALL, "policy": "CnnPolicy", "buffer_size": 400, "policy_kwargs": {"features_extractor_kwargs": {"features_dim": 16}},
        "actors": "overlapped:2x2",
    }  # fmt: skip
    env = partial(make_atari_env, "ALE/Pong-v5", 2, exact_resume=True)
    whole: Any = DQN(env=env, **kwargs).learn(100, SaveAt(tmp_path))
    resumed = DQN.load(tmp_path / "64.zip", env=env).resume()
    assert differences(whole, resumed) == []


def test_the_replay_ratio_is_exact_and_the_ladder_runs_over_all_lanes() -> None:
    updates: list[tuple[int, int]] = []

    def note(locals: Any, globals: Any) -> bool:
        updates.append((locals["self"].num_timesteps, locals["self"]._n_updates))
        return True

    ladder = {"kind": "epsilon", "ladder": "apex"}
    settings = {**SMALL, "exploration": ladder, "exploration_final_eps": 0.4, "train_freq": 6, "gradient_steps": 2}
    model: Any = DQN(env=Ledger, actors=OverlappedActors(3, lanes=2), **settings).learn(240, note)
    start = next(step for step, made in updates if made)
    assert [made for step, made in updates if step >= start] == [
        2 * (step // 6 - start // 6 + 1) for step, _ in updates if step >= start
    ]
    parts = [group.actor.selector.exploration.lane_epsilons for group in model.collector.groups]
    assert np.concatenate(parts).tolist() == pytest.approx(model.exploration.lane_epsilons.tolist())
    assert len(set(np.concatenate(parts).tolist())) == 6


def test_an_error_of_the_environment_reaches_the_user_and_the_model_stays_usable() -> None:
    envs = [Ledger, Ledger, Ledger, partial(Ledger, "raises", 20)]
    model: Any = DQN(env=envs, actors=OverlappedActors(2, lanes=2), **SMALL)
    with pytest.raises(EnvironmentFault, match=r"lane 3.*the door is locked"):
        model.learn(200)
    model.set_env(Ledger)
    model.learn(50, reset_num_timesteps=False)
    assert check_valid(model.replay.ring) == (True, "valid")


def test_settings_have_short_forms_and_wrong_ones_are_answered_with_the_fix(tmp_path: Path) -> None:
    assert as_actors("overlapped:3x4") == as_actors({"groups": 3, "lanes": 4}) == OverlappedActors(3, 4)
    with pytest.raises(ConfigurationError, match=r"groups must be an integer >= 2, got 1.*actors='overlapped'"):
        OverlappedActors(1)
    with pytest.raises(ConfigurationError, match=r"groups \* lanes = 4 entries, got 3"):
        DQN(env=[Ledger] * 3, actors=OverlappedActors(2, lanes=2), **SMALL)
    with pytest.raises(ConfigurationError, match="each group makes its own, got Ledger"):
        DQN(env=Ledger(), actors=OverlappedActors(2), **SMALL)
    with pytest.raises(ConfigurationError, match="actors must be None.*got 'overlapped:2@auto'"):
        as_actors("overlapped:2@auto")
    model: Any = DQN(
        env=open_training_env("CartPole-v1", 1, {}, {"actors": "overlapped:2x2"}), actors="overlapped:2x2", **SMALL
    )
    assert model.n_envs == 4
    model.learn(40).save(tmp_path / "model", full=True)
    loaded: Any = DQN.load(tmp_path / "model", env="CartPole-v1")
    assert loaded.actors == OverlappedActors(2, lanes=2)
    other: Any = DQN.load(tmp_path / "model", env="CartPole-v1", actors="overlapped:4x1")
    other.counters.horizon += 8
    with pytest.raises(CheckpointError, match="actors must have groups=2 as in the full checkpoint, got 4"):
        other.resume()
