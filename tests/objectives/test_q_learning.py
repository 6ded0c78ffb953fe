"""Q-learning from environment rows to the loss: worked n-step targets, double Q-learning, Munchausen; eager and traced."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn import DQN, QRDQN, R2D2
from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.buffers import Layout, ReplayBuffer, Ring, TransitionView, UniformSampler, UpdateSchedule
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.binned import BinnedValue, Bins, Readout
from sb_dqn.nn.heads.scalar import ILLEGAL, ScalarValue
from sb_dqn.objectives.bootstrap import Bootstrap, Munchausen
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.types import Batch, Rows, Slot
from tests.modes import MODES

GAMMA, N_STEPS = 0.9, 3
SPACE = spaces.Box(-np.inf, np.inf, (1,), np.float32)


def make_slot(value: float, reward: float, terminal: bool, last: bool) -> Slot:
    obs = {"obs": np.array([[value]], np.float32)}
    rewards = np.array([reward], np.float32)
    return Slot(obs, rewards, rewards, np.array([terminal]), np.array([last]), np.array([True]))


def make_stream(end: str) -> list[Slot]:
    """Builds a stream with rewards 1 to 5; observations have value 10, the reset observation 99."""
    slots = [make_slot(10, 0, False, False)]
    for reward in (1, 2, 3):
        last = reward == 3 and end != "none"
        slots.append(make_slot(10, reward, last and end == "terminated", last))
    if end != "none":
        slots.append(make_slot(99, 0, False, False))
    return [*slots, make_slot(10, 4, False, False), make_slot(10, 5, False, False)]


def write(replay: ReplayBuffer, slots: list[Slot]) -> None:
    for tick, slot in enumerate(slots):
        action = np.zeros(1, np.int64) if len(replay.ring) or tick else None
        replay.extend(Rows(action, (slot,), np.ones(1, bool), 1))
    replay.refresh()


def targets(replay: ReplayBuffer, mode: Mode, slots: list[Slot]) -> dict[int, float]:
    """Returns row -> target for every sampled row. The function is traced before the last row is written."""

    def function(noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch = replay.sample_from(noise)
        q_t = torch.cat([batch.next_obs["obs"], batch.next_obs["obs"] - 77], -1)  # the second action has a lower value
        td_target = Bootstrap()(lambda *_: None, lambda obs, mask: ScalarValue(q_t), batch)
        return batch.place[1], batch.weight, td_target.return_ + td_target.discount * td_target.next()

    write(replay, slots[:-1])
    # all four candidates of a sample are the same row, so a row that may not start gets weight 0
    noise = torch.linspace(0, 1 - 1e-6, 64, dtype=torch.float64).expand(4, 64).contiguous()
    run = accelerate(function, (noise,), mode)
    write(replay, slots[-1:])
    rows, weight, result = run(noise)
    return dict(zip(rows[weight > 0].tolist(), result[weight > 0].tolist(), strict=True))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("none", {0: 12.52, 1: 15.23, 2: 17.94}),  # the n-step windows of rows 3 and 4 are incomplete
        ("terminated", {0: 5.23, 1: 4.7, 2: 3.0}),  # row 3 is the last one
        ("truncated", {0: 12.52, 1: 12.8, 2: 12.0}),  # decoys: treated as a termination 5.23; from the reset row 77.4
    ],
)
def test_targets_from_the_stream(end: str, mode: Mode, expected: dict[int, float]) -> None:
    ring = Ring(Layout(16, 1, {"obs": SPACE}, num_actions=2, n_steps=N_STEPS))
    view = TransitionView(ring, Horizon(ring.n_steps, GAMMA))
    replay = ReplayBuffer(ring, UniformSampler(ring, 64), view, UpdateSchedule())
    assert targets(replay, mode, make_stream(end)) == pytest.approx(expected, abs=1e-5)


class Table(nn.Module):
    """Tabular network: row i holds the action values of observation i."""

    def __init__(self, rows: list[list[float]]) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.tensor(rows))

    def forward(self, obs: dict[str, Tensor], mask: Tensor | None = None) -> ScalarValue:
        q = self.rows[obs["obs"]]
        return ScalarValue(q if mask is None else torch.where(mask, q, ILLEGAL))


ONLINE = Table([[7.0, 0.0, 2.0], [1.0, 3.0, 2.0]])
TARGET = Table([[-50.0, -50.0, -50.0], [5.0, 0.5, 4.0]])
BATCH = Batch(
    obs={"obs": torch.tensor([0, 0])},
    action=torch.tensor([0, 2]),
    return_=torch.tensor([1.0, 1.0]),
    discount=torch.tensor([0.99, 0.0]),
    next_obs={"obs": torch.tensor([1, 1])},
    weight=torch.ones(2),
    place=torch.zeros(2, 2, dtype=torch.long),
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("double_q", "expected"),
    [
        (False, [5.95, 1 + 5 * 0.99**3, 1.0]),  # decoy: online network 3.97
        (True, [1.495, 1.4851495, 1.0]),  # decoys: evaluated by the online network 3.97, selected by the target 5.95
    ],
)
def test_targets_by_worked_numbers(double_q: bool, expected: list[float], mode: Mode) -> None:
    rows = {"obs": torch.ones(3, dtype=torch.long)}

    def function(discount: Tensor) -> Tensor:
        batch = BATCH._replace(return_=torch.ones(3), discount=discount, next_obs=rows, action=torch.zeros(3).long())
        td_target = Bootstrap(double_q)(ONLINE, TARGET, batch)
        return td_target.return_ + td_target.discount * td_target.next()

    discount = torch.tensor([0.99, 0.99**3, 0.0])
    result = accelerate(function, (torch.zeros(3),), mode)(discount)
    torch.testing.assert_close(result, torch.tensor(expected), rtol=0, atol=1e-6)
    assert not result.requires_grad


@pytest.mark.parametrize(
    ("double_q", "loss", "expected"),
    [
        (False, "huber", [0.55, 0.5]),  # errors 7 - 5.95 = 1.05, 2 - 1 = 1
        (False, "mse", [0.5 * 1.05**2, 0.5]),
        (True, "huber", [5.005, 0.5]),  # error 7 - 1.495 = 5.505
        (True, "mse", [0.5 * 5.505**2, 0.5]),
    ],
)
def test_the_loss(double_q: bool, loss: str, expected: list[float]) -> None:
    result, facts = QLearning(Bootstrap(double_q), loss)(ONLINE, TARGET, BATCH)
    torch.testing.assert_close(result, torch.tensor(expected))
    torch.testing.assert_close(facts["priority"], torch.tensor([5.505 if double_q else 1.05, 1.0]))
    assert facts["q_mean"].item() == 4.5
    assert facts["td_error"].item() == pytest.approx(3.2525 if double_q else 1.025)
    assert not facts["priority"].requires_grad
    assert not facts["q_mean"].requires_grad


@pytest.mark.parametrize("double_q", [False, True])
def test_only_the_value_of_the_action_taken_has_a_gradient(double_q: bool) -> None:
    loss, _ = QLearning(Bootstrap(double_q))(ONLINE, TARGET, BATCH)
    gradients: list[Any] = list(torch.autograd.grad(loss.sum(), [ONLINE.rows, TARGET.rows], allow_unused=True))
    online, target = gradients
    assert target is None
    assert online.tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="(?s)loss.*'hubert'.*Did you mean 'huber'"):
        QLearning(Bootstrap(), "hubert")


@pytest.mark.parametrize(
    ("double_q", "expected"),
    [
        (False, [1.0 + 0.99 * 4.0, 1.0]),  # largest legal value of the target network; decoy: 5.95
        (True, [1.0 + 0.99 * 4.0, 1.0]),  # its value of the online network's best legal action; decoy: 1.495
    ],
)
def test_no_target_uses_an_illegal_action(double_q: bool, expected: list[float]) -> None:
    mask = torch.tensor([[False, False, True]]).expand(2, 3)
    facts = QLearning(Bootstrap(double_q))(ONLINE, TARGET, BATCH._replace(next_mask=mask))[1]
    assert facts["priority"].tolist() == pytest.approx([7.0 - expected[0], 2.0 - expected[1]])


TAU = 0.5
SOFT_ONLINE = Table([[7.0, 0.0], [0.0, TAU * math.log(7.0)]])
SOFT_TARGET = Table([[TAU * math.log(3.0), 0.0], [TAU * math.log(3.0), 0.0]])
"""Softmax policies: target 3/4, 1/4; online 1/8, 7/8 at the second observation and nearly deterministic at the first."""
SOFT_BATCH = BATCH._replace(action=torch.tensor([0, 1]), discount=torch.tensor([0.9, 0.0]))


@pytest.mark.parametrize("mode", ["eager", "traced"])
@pytest.mark.parametrize(
    ("double_q", "clip", "expected"),
    [
        # 1 + .9 * .5 ln .75 + .9 * .5 ln 4; 1 + .9 * .5 ln .25 after a termination
        # decoys: max instead of the soft value 1.365, no entropy 1.241, the bonus discounted 1.507
        (False, -1.0, [1.4943755, 0.3761675]),
        (False, -0.5, [1.4943755, 0.55]),
        # bonus 0 and -.9 from the online network; .9 * (.125 * (.5 ln 3 - .5 ln .125) + .875 * (0 - .5 ln .875))
        (True, -1.0, [1.2313431, 0.1]),
    ],
)
def test_munchausen_by_worked_numbers(double_q: bool, clip: float, expected: list[float], mode: Mode) -> None:
    objective = QLearning(Bootstrap(double_q, Munchausen(0.9, TAU, clip)), "mse")

    def function(return_: Tensor) -> Tensor:
        return objective(SOFT_ONLINE, SOFT_TARGET, SOFT_BATCH._replace(return_=return_))[1]["priority"]

    result = accelerate(function, (torch.zeros(2),), mode)(SOFT_BATCH.return_)
    assert result.tolist() == pytest.approx([7.0 - expected[0], expected[1] - 0.0], abs=1e-6)


def test_munchausen_ignores_illegal_actions() -> None:
    wide, wide_target = (Table([[*row, 50.0] for row in table.rows.tolist()]) for table in (SOFT_ONLINE, SOFT_TARGET))
    mask = torch.tensor([[True, True, False]]).expand(2, 3)
    objective = QLearning(Bootstrap(False, Munchausen(0.9, TAU, -1.0)))
    loss, facts = objective(wide, wide_target, SOFT_BATCH._replace(mask=mask, next_mask=mask))
    expected_loss, expected = objective(SOFT_ONLINE, SOFT_TARGET, SOFT_BATCH)
    torch.testing.assert_close(loss, expected_loss)
    torch.testing.assert_close(facts["priority"], expected["priority"])


@pytest.mark.parametrize("munchausen", [None, Munchausen()])
@pytest.mark.parametrize("double_q", [False, True])
def test_branches_are_averaged_as_separate_transitions(double_q: bool, munchausen: Munchausen | None) -> None:
    rng = torch.Generator().manual_seed(0)
    online, target = (Table(torch.randn(6, 2, 3, generator=rng).tolist()) for _ in range(2))
    batch = Batch(
        obs={"obs": torch.arange(3)},
        action=torch.randint(3, (3, 2), generator=rng),
        return_=torch.randn(3, generator=rng),
        discount=torch.tensor([0.9, 0.0, 0.5]),
        next_obs={"obs": torch.arange(3, 6)},
        weight=torch.ones(3),
        place=torch.zeros(2, 3, dtype=torch.long),
    )
    objective = QLearning(Bootstrap(double_q, munchausen))
    loss, facts = objective(online, target, batch)
    parts = []
    for branch in range(2):
        branch_online, branch_target = (Table(table.rows[:, branch].tolist()) for table in (online, target))
        parts.append(objective(branch_online, branch_target, batch._replace(action=batch.action[:, branch])))
    torch.testing.assert_close(loss, (parts[0][0] + parts[1][0]) / 2)
    torch.testing.assert_close(facts["priority"], (parts[0][1]["priority"] + parts[1][1]["priority"]) / 2)
    torch.testing.assert_close(facts["q_mean"], (parts[0][1]["q_mean"] + parts[1][1]["q_mean"]) / 2)


def binned(bins: Bins, logits: list[list[float]]) -> BinnedValue:
    """Returns the value of one observation, of which each action has logits of its own."""
    return BinnedValue(torch.tensor([logits]), Readout(bins))


def one_step(reward: float, discount: float) -> Batch:
    none = {"obs": torch.zeros(1, 1)}
    place = torch.zeros(2, 1, dtype=torch.long)
    return Batch(
        none, torch.tensor([1]), torch.tensor([reward]), torch.tensor([discount]), none, torch.ones(1), place=place
    )


def test_worked_loss_of_classes_with_decoys() -> None:
    """Probabilities (1/2, 1/4, 1/4) and (1/4, 1/2, 1/4) of returns -1, 0, 1: values -1/4 and 0; y = 0.25 + 0.5 * 0 = 0.25."""
    logits = [[math.log(p) for p in row] for row in ((0.5, 0.25, 0.25), (0.25, 0.5, 0.25))]
    value = binned(Bins("two_hot", 3, -1.0, 1.0), logits)
    torch.testing.assert_close(value.q, torch.tensor([[-0.25, 0.0]]))
    net: Any = lambda obs, mask: value  # noqa: E731
    loss, facts = QLearning()(net, net, one_step(0.25, 0.5))
    expected = -(0.75 * math.log(0.5) + 0.25 * math.log(0.25))  # action 1; y is a quarter of the way from 0 to 1
    torch.testing.assert_close(loss, torch.tensor([expected]))
    assert float(loss) != pytest.approx(-(0.25 * math.log(0.5) + 0.75 * math.log(0.25)))  # weights exchanged
    assert float(facts["priority"]) == pytest.approx(0.25)  # |0 - 0.25|, in units of values


def test_the_gradient_of_classes_is_softmax_minus_target() -> None:
    logits = torch.tensor([[[0.3, -0.2, 0.5], [0.1, 0.4, -0.6]]], requires_grad=True)
    value = BinnedValue(logits, Readout(Bins("two_hot", 3, -1.0, 1.0)))
    value.cross_entropy(torch.tensor([1]), torch.tensor([0.25])).sum().backward()
    expected = torch.zeros(1, 2, 3)
    expected[0, 1] = logits.detach()[0, 1].softmax(-1) - torch.tensor([0.0, 0.75, 0.25])
    torch.testing.assert_close(logits.grad, expected)


WIDE = 22_025.0


@pytest.mark.parametrize("kind", ["hl_gauss", "two_hot"])
@pytest.mark.parametrize("y", [-3_000.0, -0.5, 0.0, 2.0, 10_000.0])
def test_symlog_bins_hold_returns_of_any_size(kind: str, y: float) -> None:
    """A head that predicts the target's classes has the target as its value."""
    readout = Readout(Bins(kind, 201, -WIDE, WIDE, transform="symlog"))
    classes = readout.classes(torch.tensor([y]))
    assert float(readout.mean(classes.clamp_min(1e-30).log())) == pytest.approx(y, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("transform", ["none", "symlog"])
def test_the_automatic_range_is_one_of_scaled_rewards(transform: str) -> None:
    """Six on both sides in units of values, after the transform; two-hot has fewer bins."""
    end = math.log(7.0) if transform == "symlog" else 6.0
    for kind, size in (("hl_gauss", 101), ("two_hot", 21)):
        bins = Bins(kind, transform=transform)
        assert bins.scales_rewards
        assert bins.ends == pytest.approx((-end, end))
        assert Readout(bins).centers.shape == (size,)
    assert not Bins(v_min=-6.0, v_max=6.0, transform=transform).scales_rewards


@pytest.mark.parametrize(
    ("value_loss", "message"),
    [
        ("hl-gauss", r"value_loss\['kind'\] must be"),
        ({"bins": 2}, r"value_loss\['bins'\] must be"),
        ({"v_min": 0.0}, "v_min and v_max of value_loss must both be set or both be None, got 0.0 and None"),
        ({"v_min": 2.0, "v_max": 1.0}, "v_min of value_loss must be below v_max, got 2.0 and 1.0"),
        ({"transform": "log"}, r"value_loss\['transform'\] must be"),
        ({"range": 3}, "range"),
        (3, "value_loss must be True, False or a dict"),
    ],
)
def test_settings_of_classes_that_are_refused(value_loss: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        DQN("MlpPolicy", "CartPole-v1", value_loss=value_loss)


def test_classes_have_a_loss_of_their_own() -> None:
    with pytest.raises(ConfigurationError, match="loss must be unset with value_loss"):
        DQN("MlpPolicy", "CartPole-v1", value_loss=True, loss="mse")
    with pytest.raises(ConfigurationError, match="value_rescale_eps must be None with value_loss"):
        R2D2("MlpLstmPolicy", "CartPole-v1", value_loss=True)
    with pytest.raises(ConfigurationError, match="value_loss"):
        QRDQN("MlpPolicy", "CartPole-v1", value_loss=True)


@pytest.mark.parametrize("switches", [{}, {"dueling": True}, {"noisy": True}], ids=str)
def test_two_hot_starts_at_a_value_of_zero_for_every_action(switches: dict[str, Any]) -> None:
    """With random weights values of symlog would start at tens, from bins that weigh thousands."""
    value_loss = {"kind": "two_hot", "transform": "symlog", "v_min": -WIDE, "v_max": WIDE}
    model = DQN("MlpPolicy", "CartPole-v1", value_loss=value_loss, seed=0, **switches)
    values = model.q_values(np.ones((5, 4), np.float32))
    np.testing.assert_allclose(values, 0.0, atol=1e-3)  # float32 sums of 22,025 and its negative
    other = DQN("MlpPolicy", "CartPole-v1", value_loss="hl_gauss", seed=0, **switches)
    assert np.abs(other.q_values(np.ones((5, 4), np.float32))).max() > 1e-3
