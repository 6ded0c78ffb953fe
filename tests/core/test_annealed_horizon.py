"""n and gamma that change within a reset cycle: the clock and its curve, and the batches of a run."""

from __future__ import annotations

import math
from typing import Any

import pytest

from sb_dqn.algorithms import R2D2, SAC
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.errors import ConfigurationError
from sb_dqn.learning.resets import Resets
from sb_dqn.schedules import Annealed
from tests.continuous import Reach
from tests.marks import SLOW
from tests.tiny import Tiny, lanes, quick

CYCLE = {"start": 10, "end": 3, "updates": 10_000}


def test_published_cycle_by_hand() -> None:
    """BBF: n from 10 to 3 and gamma from 0.97 to 0.997 over 10,000 updates."""
    horizon = Horizon(CYCLE, {"start": 0.97, "end": 0.997, "updates": 10_000})
    found = [horizon.after(t) for t in (0, 2_500, 5_000, 7_500, 10_000, 50_000)]
    # 10^.75 3^.25 = 7.40, 10^.5 3^.5 = 5.48, 10^.25 3^.75 = 4.05; straight lines would give 8, 6 (or 7) and 5
    assert [n for n, _ in found] == [10, 7, 5, 4, 3, 3]
    # 1 - gamma: .03, .03^.75 .003^.25 = .01687, .0094868, .0053348, .003; a line of gamma would give .9835 in the middle
    wanted = [0.97, 0.9831298, 0.9905132, 0.9946652, 0.997, 0.997]
    assert [gamma for _, gamma in found] == pytest.approx(wanted, abs=1e-6)


def test_numbers_stay() -> None:
    horizon = Horizon(3, 0.9)
    assert not horizon.is_annealed
    assert horizon.after(0) == horizon.after(10**6) == (3, 0.9)
    growing = Horizon(Annealed(1, 5, 10), 1.0)
    assert [growing.after(t)[0] for t in (0, 5, 10)] == [1, 2, 5]  # sqrt(5) = 2.24


def test_the_clock_starts_again_at_each_reset() -> None:
    resets = Resets(100, until=250)
    assert [resets.latest_reset(done) for done in (0, 99, 100, 199, 200, 299, 300, 1_000)] == [
        0,
        0,
        100,
        100,
        200,
        200,
        200,
        200,
    ]


@SLOW
@pytest.mark.parametrize(
    "settings",
    [{}, {"prioritized_replay": {"initial": "td_error"}}, {"algorithm": R2D2}, {"algorithm": SAC}],
    ids=["DQN", "initial errors", "R2D2", "SAC"],
)
def test_batches_of_a_run_follow(settings: dict[str, Any]) -> None:
    """Each update samples with the n and gamma of its place in the cycle."""
    cycle = {"n_steps": {"start": 4, "end": 1, "updates": 6}, "gamma": {"start": 0.5, "end": 0.9, "updates": 6}}
    env = Reach if settings.get("algorithm") is SAC else Tiny
    model: Any = quick(lanes(2, env), resets=10, **cycle, **settings)
    seen = []
    model.learn(30)
    horizon = model.replay.view.horizon
    learn = model.gradient_step

    def noted() -> Any:
        update = learn()
        seen.append((model._n_updates % 10, *horizon.current))
        return update

    model.gradient_step = noted
    model.learn(120, reset_num_timesteps=False)
    assert {place for place, _, _ in seen} >= {0, 1, 5, 6, 9}
    for place, n, gamma in seen:
        share = max(0.0, 1 - place / 6)
        assert n == round(4**share)
        assert gamma == pytest.approx(1 - math.exp(share * math.log(0.5) + (1 - share) * math.log(0.1)))
    assert model.discount == 0.9
    assert horizon.powers[1] == pytest.approx(seen[-1][2])


def test_an_annealed_discount_below_one() -> None:
    with pytest.raises(ConfigurationError, match="gamma"):
        Horizon(1, {"start": 0.9, "end": 1.0, "updates": 5})
    with pytest.raises(ConfigurationError, match="n_steps"):
        Horizon({"start": 3, "end": 0, "updates": 5}, 0.9)
