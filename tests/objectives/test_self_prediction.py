"""Self-prediction: the loss by hand, what it reads from the replay, which parameters it trains, and runs of all kinds of agents."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sb_dqn.algorithms import BTR, FQF, IQN, PQN, QRDQN, R2D2, CategoricalDQN
from sb_dqn.buffers.n_step_transitions import Horizon, TransitionView
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout, StartRule
from sb_dqn.errors import ConfigurationError
from sb_dqn.learning.resets import reset_networks
from sb_dqn.losses.sequences import self_prediction_loss
from sb_dqn.nn.latent import LatentModel, renormalized
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Game, naive_stack, play
from tests.continuing import digest
from tests.marks import SLOW, a_few
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

IMAGE: dict[str, Any] = {"policy": "CnnPolicy", "policy_kwargs": {"features_extractor_kwargs": SMALL_CNN}}
VECTOR: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 6]}}
AHEAD = {"steps": 3, "weight": 2.0}
scripts = st.lists(st.lists(st.sampled_from(["go", "go", *EVENTS]), min_size=1, max_size=12), min_size=3, max_size=3)


def test_loss_by_hand() -> None:
    """Two steps, the second after the end in one of two rows; vectors of length 1 count, whatever their length was."""
    predicted = torch.tensor([[[3.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [0.0, 1.0]]])
    projected = torch.tensor([[[5.0, 0.0], [7.0, 0.0]], [[0.0, 4.0], [9.0, 0.0]]])
    valid = torch.tensor([[True, True], [True, False]])
    found = self_prediction_loss(predicted, projected, valid)
    # row 0: 0, then 2 - 2 cos 45 degrees; row 1: 2, then nothing; the mean is over both steps. Over the valid ones, row 1 had 2.
    assert found.tolist() == pytest.approx([(0.0 + 2 - 2**0.5) / 2, 1.0])
    unlimited = ((predicted - projected).square().sum(-1) * valid).mean(0)
    assert not torch.allclose(found, unlimited)


def test_renormalized_by_hand() -> None:
    z = renormalized(torch.tensor([[1.0, 3.0, 2.0], [-4.0, 4.0, 0.0], [5.0, 5.0, 5.0]]))
    torch.testing.assert_close(z, torch.tensor([[0.0, 1.0, 0.5], [0.0, 1.0, 0.5], [0.0, 0.0, 0.0]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [None, (2, 3, 4)])
def test_each_action_has_planes_or_numbers_of_its_own(shape: Any) -> None:
    """The model of (branch 2 choices, 3 choices) reads one of the first two and one of the last three."""
    width = 24
    model = LatentModel(width, shape, (2, 3), 5)
    model.requires_grad_(False)
    z = torch.rand(4, width)
    first = model.transition[0]
    read: list[torch.Tensor] = []
    first.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    after = model(z, torch.tensor([[[1, 2], [0, 0], [1, 0], [0, 1]]]))
    assert after.shape == (1, 4, width)
    choices = read[0].view(4, -1, 12 if shape else 1)[:, -5:].float().mean(-1)
    assert choices.tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 0, 0], [0, 1, 1, 0, 0], [1, 0, 0, 1, 0]]
    twice = model(z, torch.zeros(2, 4, 2, dtype=torch.int64))
    torch.testing.assert_close(twice[1], model(twice[0], torch.zeros(1, 4, 2, dtype=torch.int64))[0])
    assert float(after.amin()) == 0.0
    assert float(after.amax()) <= 1.0


@pytest.mark.parametrize(("n", "k", "steps"), [(1, 1, 1), (1, 3, 4), (4, 1, 2)])
@settings(max_examples=4, derandomize=True, database=None)
@given(scripts=scripts, kind=st.sampled_from(["NEXT_STEP", "SAME_STEP"]), ticks=st.integers(20, 50))
def test_what_is_read_equals_the_episodes(
    n: int, k: int, steps: int, scripts: list[list[str]], kind: str, ticks: int
) -> None:
    games = [Game(lane, scripts[lane]) for lane in range(3)]
    rule = StartRule(k - 1, max(n, steps))
    layout = Layout(40 * 3, 3, SPACES, num_actions=NUM_ACTIONS, frame_stack=k, n_steps=n, start_rule=rule)
    ring = Ring(layout)
    for rows in islice(play(games, kind, np.random.default_rng(ticks)), ticks):
        ring.cut() if rows.action is None else ring.depart(rows.action)
        for slot in rows.slots:
            ring.arrive(slot)
    ring.refresh_bounds()
    every = torch.tensor([(b, r) for b, game in enumerate(games) for r in range(len(game.rows()))]).T
    lane, row = every[:, ring.may_start(*every)]
    assert len(row)
    batch = TransitionView(ring, Horizon(ring.n_steps, 0.9), future=steps).gather(lane, row, torch.ones(len(row)))
    assert batch.extra is not None
    assert batch.future is not None
    actions, valid = batch.extra["future_action"], batch.extra["future_valid"]
    assert actions.shape[:2] == valid.shape == (steps, len(row))
    for i, (b, r) in enumerate(batch.place.T.tolist()):
        rows = games[b].rows()
        episode, t = rows[r]
        alive = True
        for step in range(1, steps + 1):
            assert bool(valid[step - 1, i]) == alive  # an observation counts up to the first end before it
            if not alive:
                break
            assert int(actions[step - 1, i]) == episode.actions[t + step - 1]
            for key in SPACES:
                seen = batch.future[key].unflatten(0, (steps, -1))[step - 1, i]
                np.testing.assert_array_equal(seen, naive_stack(episode, t + step, key, k))
            alive = not (episode.steps[t + step].last or episode.steps[t + step].terminal)


@SLOW
def test_the_loss_trains_encoder_and_projection_and_not_the_target() -> None:
    model: Any = quick(lanes(2), self_prediction=AHEAD, **VECTOR).learn(60)
    batch = model.replay.sample(16)
    net, objective = model.policy.q_net, model.learner.objective
    loss, facts = objective(net, model.policy.q_net_target, batch)
    inner, _ = objective.inner(net, model.policy.q_net_target, batch)
    extra = loss - inner
    torch.testing.assert_close(extra.mean(), 2.0 * facts["self_prediction"])
    found = {
        name: bool(grad.abs().sum() > 0)
        for (name, _), grad in zip(
            net.named_parameters(),
            torch.autograd.grad(extra.sum(), list(net.parameters()), materialize_grads=True),
            strict=True,
        )
    }
    assert {name.split(".")[0] for name, has in found.items() if has} == {"torso", "last", "latent_model"}
    assert "td_error" in facts
    # `priority` stays the error
    torch.testing.assert_close(facts["priority"], objective.inner(net, model.policy.q_net_target, batch)[1]["priority"])


def test_the_head_reads_renormalized_states() -> None:
    model = quick(self_prediction=True, **VECTOR)
    net, obs = model.policy.q_net, {"obs": torch.randn(5, 2)}
    z = net.latent(obs)
    assert z.amin(-1).tolist() == [0.0] * 5
    torch.testing.assert_close(net(obs).q, net.head(net.last(z)).q)


@SLOW
def test_it_learns_to_predict() -> None:
    """In a game whose observations follow from the actions, predictions get better."""
    model = quick(
        "CartPole-v1", learning_starts=64, gradient_steps=4, self_prediction=True, policy_kwargs={"net_arch": [32, 32]}
    )
    model.learn(100)
    batch = model.replay.sample(64)

    def error() -> float:
        with torch.no_grad():
            facts = model.learner.objective(model.policy.q_net, model.policy.q_net_target, batch)[1]
        return float(facts["self_prediction"])

    before = error()
    model.learn(500, reset_num_timesteps=False)
    assert error() < 0.7 * before


def test_transitions_keep_their_share_at_a_reset() -> None:
    model: Any = quick(self_prediction=True, **VECTOR)
    kept = [parameter.detach().clone() for parameter in model.policy.q_net.latent_model.transition.parameters()]
    drawn = model.policy.q_net.latent_model.predictor.weight.detach().clone()
    reset_networks(model.policy, model.learner, keep=1.0, seed=3)
    for old, new in zip(kept, model.policy.q_net.latent_model.transition.parameters(), strict=True):
        assert torch.equal(old, new)
    assert not torch.equal(drawn, model.policy.q_net.latent_model.predictor.weight)


CASES: dict[str, dict[str, Any]] = {
    "vector": VECTOR,
    "image": {**IMAGE, "env": partial(Tiny, "image")},
    "all switches": {
        **IMAGE, "env": partial(Tiny, "image"), "double_q": True, "dueling": True, "noisy": True, "n_steps": 5,
        "prioritized_replay": True,
        "munchausen": True, "augmentation": {"shift": 1}, "resets": 5, "act_with": "target", "tau": 0.1,
    },
    "bf16": {**IMAGE, "env": partial(Tiny, "image"), "precision": "bf16"},
    "initial errors": {**VECTOR, "prioritized_replay": {"initial": "td_error"}},
    "normalized": {**VECTOR, "normalize_observations": True, "value_loss": "hl_gauss", "redo": 6},
    "dict": {"policy": "MultiInputPolicy", "env": partial(Tiny, "dict with image"), "policy_kwargs": {"net_arch": [8, 8]}},
    "shared heads": {**VECTOR, "target": "shared", "iterations": 2, "dueling": True},
    "C51": {**VECTOR, "algorithm": CategoricalDQN},
    "QR": {**VECTOR, "algorithm": QRDQN},
    "IQN": {**VECTOR, "algorithm": IQN},
    "FQF": {**VECTOR, "algorithm": FQF},
    "groups": {**VECTOR, "actors": "overlapped:2x1", "train_freq": 2},
}  # fmt: skip


@SLOW
@pytest.mark.parametrize("name", a_few(CASES, "vector", "all switches", "dict", "C51", "shared heads"))
def test_runs(name: str) -> None:
    def run() -> Any:
        settings = dict(CASES[name])
        env = settings.pop("env", Tiny)
        return quick(lanes(2, env), self_prediction=AHEAD, **settings).learn(60)

    first, again = run(), run()
    assert first._n_updates >= 2
    assert torch.isfinite(first.learner.flat).all()
    assert digest(first) == digest(again)


@SLOW
@pytest.mark.parametrize("algorithm", [CategoricalDQN, QRDQN, FQF])
def test_half_precision_twins_follow_their_masters_on_both_sides_of_the_head(algorithm: Any) -> None:
    model = quick(
        lanes(2, partial(Tiny, "image")),
        algorithm=algorithm,
        self_prediction=AHEAD,
        precision="bf16",
        dueling=True,
        **IMAGE,
    ).learn(60)
    learner = model.learner
    learner.store.sync_target(0.25)
    names = [name.partition(".")[0] for name, _ in learner.online.named_parameters()]
    assert names.index("head") < names.index("latent_model")
    for master, twin in ((model.policy.q_net, learner.online), (model.policy.q_net_target, learner.target)):
        for (name, high), low in zip(master.named_parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(low, high.to(low.dtype), rtol=0, atol=0, msg=name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": R2D2}, "recurrent policy"),
        ({"policy": "MlpLstmPolicy", "policy_kwargs": {"lstm_hidden_size": 4, "net_arch": [8]}}, "recurrent policy"),
        ({"policy_kwargs": {"net_arch": [8]}}, "net_arch.*hidden layer"),
        ({"buffer_size": 4, "self_prediction": {"steps": 9}, **VECTOR}, "buffer_size must be at least 10"),
        ({"self_prediction": {"steps": 0}, **VECTOR}, "steps"),
        ({"self_prediction": {"weight": 0}, **VECTOR}, "weight"),
        ({"algorithm": PQN}, "self_prediction"),
    ],
)
def test_what_does_not_combine(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        quick(**{"self_prediction": True, **settings})


def test_btr_from_images() -> None:
    pooled = {
        "features_extractor_class": "ImpalaCNN",
        "features_extractor_kwargs": {"adaptive_pool": (1, 1), "features_dim": 8},
    }
    model: Any = quick(
        lanes(2, partial(Tiny, "image")), "CnnPolicy", BTR, self_prediction=AHEAD, train_freq=4, policy_kwargs=pooled
    ).learn(30)
    assert model.policy.q_net.latent_model.shape == (32, 1, 1)
    assert model._n_updates > 0
