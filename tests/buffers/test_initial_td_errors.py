"""Initial priorities of transitions from the Q-values at acting time, as in Ape-X, against sums by hand."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest

from sb_dqn import C51, DQN, SAC
from sb_dqn.errors import ConfigurationError
from tests.actors.games import Ledger
from tests.invariants import check_valid
from tests.marks import ON_DEVICES_IN_FULL

SMALL: dict[str, Any] = {
    "seed": 3,
    "device": "cpu",
    "policy_kwargs": {"net_arch": [8]},
    "batch_size": 4,
    "buffer_size": 400,
}
pytestmark = [pytest.mark.usefixtures("eagerly", "storage"), ON_DEVICES_IN_FULL]


def in_one_step() -> Any:
    """Returns an environment that delivers the last observation of an episode together with the first of the next."""
    return gymnasium.vector.SyncVectorEnv([Ledger, Ledger], autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("make_env", [lambda: [Ledger, Ledger], in_one_step], ids=["next step", "same step"])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_new_rows_have_the_priorities_of_their_own_td_errors(n_steps: int, make_env: Any) -> None:
    settings = {"initial": "td_error", "alpha": 1.0, "eps": 0.25}
    model: Any = DQN(
        "MlpPolicy",
        make_env(),
        prioritized_replay=settings,
        n_steps=n_steps,
        gamma=0.5,
        learning_starts=10_000,
        **SMALL,
    ).learn(120)
    ring = model.replay.ring
    model.replay.refresh()
    columns = {
        name: column.numpy().reshape(-1, 2, *column.shape[1:])
        for name, column in ring.columns.items()
        if "obs" not in name
    }
    observed = ring.obs["obs"][: ring.rows * 2].reshape(-1, 2, 2)
    q = (
        model.policy.values({"obs": observed.reshape(-1, 2)}, None).detach().reshape(-1, 2, 3).numpy()
    )  # weights never change
    low, high = ring.intervals()
    checked = ended = truncated = 0
    for lane in range(2):
        for row in range(low[lane], high[lane]):
            leaf = float(model.replay.sampler.tree.leaves[row * 2 + lane])
            if columns["last"][row, lane]:
                assert leaf == 0.0
                continue
            total, discount, end = 0.0, 1.0, row
            while end < row + n_steps and not (columns["last"][end, lane] and end > row):
                end += 1
                total += discount * float(columns["reward"][end, lane])
                discount *= 0.5
            ended += bool(columns["terminal"][end, lane])
            truncated += bool(columns["last"][end, lane] and not columns["terminal"][end, lane])
            discount *= not columns["terminal"][end, lane]
            error = q[row, lane, columns["action"][row, lane]] - (total + discount * q[end, lane].max())
            assert leaf == pytest.approx(abs(error) + 0.25, rel=1e-4)
            checked += 1
    assert checked > 80
    assert ended > 3
    assert truncated > 3


def test_refreshing_when_only_last_rows_are_new_changes_nothing() -> None:
    """With an update per step, the only new row of a refresh may be the `last` one of an episode, which never starts."""
    model: Any = DQN(
        "MlpPolicy",
        Ledger,
        prioritized_replay={"initial": "td_error"},
        train_freq=1,
        n_steps=3,
        learning_starts=8,
        **SMALL,
    ).learn(60)
    assert model.replay.ring.last.sum() > 5
    assert check_valid(model.replay.sampler) == (True, "valid")


def test_where_the_units_differ_it_is_refused() -> None:
    settings = {"initial": "td_error"}
    with pytest.raises(ConfigurationError, match="must be 'max' or a number with priorities in other units"):
        C51("MlpPolicy", "CartPole-v1", prioritized_replay=settings)
    with pytest.raises(ConfigurationError, match="for a policy that samples"):
        SAC("MlpPolicy", "Pendulum-v1", prioritized_replay=settings)
    with pytest.raises(ConfigurationError, match="with sequences"):
        DQN("MlpLstmPolicy", "CartPole-v1", prioritized_replay=settings)
    with pytest.raises(ConfigurationError, match="'max', 'td_error' or a number"):
        DQN("MlpPolicy", "CartPole-v1", prioritized_replay={"initial": "td"})
