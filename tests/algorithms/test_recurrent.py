"""Agents that remember: what they are trained on is what they acted on, whatever the head, the net and the stream."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.algorithms import DQN, FQF, IQN, PQN, QRDQN, R2D1, R2D2, CategoricalDQN
from sb_dqn.algorithms.dqn import ReturnModel
from sb_dqn.algorithms.r2d2 import update_cadence
from sb_dqn.buffers import SequenceView
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.evaluation import evaluate_policy
from sb_dqn.losses.transforms import rescaling
from sb_dqn.nn.heads.categorical import Categorical
from sb_dqn.objectives.bootstrap import Bootstrap, Munchausen
from sb_dqn.objectives.categorical import CategoricalObjective
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.types import Update
from tests.choices import Choices
from tests.marks import SLOW, a_few
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

SEQUENCES = {"batch_T": 6, "warmup_T": 4, "store_rnn_state_interval": 2}
SMALL = {"lstm_hidden_size": 6, "encoder_arch": [5], "net_arch": [8]}
HEADS: dict[str, tuple[Any, dict[str, Any]]] = {
    "scalar": (DQN, {}),
    "C51": (CategoricalDQN, {"n_atoms": 5}),
    "QR": (QRDQN, {"n_quantiles": 4}),
    "IQN": (IQN, {"n_taus": 3, "n_target_taus": 4, "n_policy_taus": 5, "n_cosines": 6}),
    "FQF": (FQF, {"n_fractions": 3, "n_cosines": 6}),
}


def recurrent(env: Any, policy: str = "MlpLstmPolicy", algorithm: Any = DQN, **kwargs: Any) -> Any:
    given = {"policy_kwargs": SMALL, "sequences": SEQUENCES, "batch_size": 5, "learning_starts": 20, **kwargs}
    return quick(env, policy, algorithm, **given)


def tape(model: Any) -> dict[tuple[int, int], np.ndarray]:
    """The values that the actor has from now on, by lane and row, with mean weights."""
    found: dict[tuple[int, int], np.ndarray] = {}
    runner = model.collector.actor.selector.runner
    runner.generator = None
    run = runner._run

    def listen(*inputs: Any) -> Any:
        q, state = run(*inputs)
        for lane, row in enumerate(model.replay.ring.cursor - 1):
            found[lane, int(row)] = q[lane].numpy().copy()
        return q, state

    runner._run = listen
    return found


def values_of_training(model: Any) -> list[tuple[int, int, torch.Tensor, bool]]:
    """Lane, row, values and weight at each trained step of every sequence that the replay can give."""
    replay, net = model.replay, model.policy.q_net
    replay.refresh()
    lane, row = (torch.from_numpy(part) for part in replay.ring.rows_between(*replay.ring.intervals()))
    may = replay.ring.may_start(lane, row)
    lane, row = lane[may], row[may]
    batch = model.normalizer.batch(replay.view.gather(lane, row, torch.ones(len(row))))
    sequences = model.replay_config.sequences
    with torch.no_grad():
        features = net.unroll(batch.obs, batch.extra, sequences.warmup_T, sequences.batch_T)
        q = net({"features": features.trained.flatten(0, 1)}, batch.mask, None).q.unflatten(0, (sequences.batch_T, -1))
    weight = batch.weight.view(sequences.batch_T, -1)
    return [
        (int(lane[i]), int(row[i]) + t, q[t, i], bool(weight[t, i] > 0))
        for t in range(sequences.batch_T)
        for i in range(len(row))
    ]


CASES: dict[str, dict[str, Any]] = {
    **{head: {"head": head} for head in HEADS},
    "noisy": {"noisy": True, "dueling": True},
    "gru": {"policy_kwargs": {**SMALL, "rnn": "gru", "n_lstm_layers": 2, "previous_reward": True}},
    "two layers": {"policy_kwargs": {**SMALL, "n_lstm_layers": 2, "previous_action": False}},
    "every state": {"sequences": {**SEQUENCES, "store_rnn_state_interval": 1}},
    "statistics": {"normalize_observations": True},
    "frames": {"observation": "frames", "policy": "CnnLstmPolicy"},
    "a dict": {"observation": "dict", "policy": "MultiInputLstmPolicy"},
    "branches": {"actions": "multi discrete", "policy_kwargs": {**SMALL, "previous_reward": True}},
}


@SLOW
@pytest.mark.parametrize("case", a_few(CASES, "scalar", "gru", "branches"))
def test_training_sees_the_values_that_the_actor_had(case: str) -> None:
    """Frozen weights, stored states: at every trained step, over ends, time limits and burn-in, to 1e-5."""
    given = dict(CASES[case])
    algorithm, of_head = HEADS[given.pop("head", "scalar")]
    observation, actions = given.pop("observation", "vector"), given.pop("actions", "discrete")
    game = partial(Choices, observation, actions, observation == "vector", length=9)
    if observation == "frames":
        given["policy_kwargs"] = {**SMALL, "features_extractor_kwargs": SMALL_CNN}
    if observation == "vector":
        given["action_mask"] = "info"
    policy = given.pop("policy", "MlpLstmPolicy")
    model = recurrent([game] * 3, policy, algorithm, **{**of_head, **given})
    heard = tape(model)
    model.rate_schedule = lambda step, horizon: 0.0  # frozen: the nets stay, everything else goes on
    if model.arguments["normalize_observations"]:
        model.normalizer.update = lambda rows: None
    model.learn(180)
    assert model._n_updates > 10
    compared = 0
    for lane, row, q, counts in values_of_training(model):
        if counts and (lane, row) in heard:
            np.testing.assert_allclose(q.numpy(), heard[lane, row], atol=1e-5)
            compared += 1
    assert compared > 150


def test_the_test_above_sees_a_state_that_is_wrong() -> None:
    model = recurrent(lanes(2, partial(Tiny, length=30)))
    heard = tape(model)
    model.rate_schedule = lambda step, horizon: 0.0
    model.learn(100)
    model.replay.ring.columns["state"].add_(0.5)
    wrong = [
        not np.allclose(q.numpy(), heard[lane, row], atol=1e-5)
        for lane, row, q, counts in values_of_training(model)
        if counts
    ]
    assert np.mean(wrong) > 0.5


@pytest.mark.traced
@pytest.mark.parametrize("head", a_few(HEADS, "scalar", "QR"))
def test_every_head_learns(head: str) -> None:
    algorithm, of_head = HEADS[head]
    switches = {"double_q": True, "dueling": True, "noisy": True, "n_steps": 3, "prioritized_replay": True}
    model = recurrent(lanes(2), algorithm=algorithm, **{**switches, **of_head}, munchausen=True)
    before = model.learner.flat.clone()
    model.learn(80)
    moved = (model.learner.flat - before).abs()
    assert bool(model.learner.finite)
    rnn = {name: p for name, p in model.policy.q_net.named_parameters() if "recurrent_layer" in name}
    assert rnn
    assert all(bool(p.isfinite().all()) for p in rnn.values())
    assert float(moved.max()) > 0


@pytest.mark.parametrize("head", a_few(HEADS, "scalar", "QR"))
def test_what_comes_before_the_memory_computes_in_bfloat16(head: str, tmp_path: Path) -> None:
    algorithm, of_head = HEADS[head]
    cnn = {"policy_kwargs": {**SMALL, "features_extractor_kwargs": SMALL_CNN, "layer_norm": True}}
    model = recurrent(
        lanes(2, partial(Tiny, "image")), "CnnLstmPolicy", algorithm, noisy=True, precision="bf16", **cnn, **of_head
    )
    model.learn(60)
    learner, net = model.learner, model.policy.q_net
    assert model._n_updates > 5
    assert bool(learner.finite)
    for name, parameter in learner.online.named_parameters():
        before = name.startswith(("features", "encoder"))
        assert parameter.dtype == (torch.bfloat16 if before else torch.float32), name
        assert before or parameter.data_ptr() == net.get_parameter(name).data_ptr()
    assert learner.low.numel() == sum(p.numel() for p in learner.online.parameters() if p.dtype == torch.bfloat16)
    torch.testing.assert_close(learner.low, learner.flat[: learner.low.numel()].bfloat16(), rtol=0, atol=0)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model", device="cpu")
    assert torch.equal(loaded.learner.low, learner.low)


def test_bfloat16_gradients_along_sequences_point_the_same_way() -> None:
    cnn = {"policy_kwargs": {**SMALL, "features_extractor_kwargs": SMALL_CNN}}
    games = lanes(2, partial(Tiny, "image", length=30))
    high, low = (recurrent(games, "CnnLstmPolicy", precision=kind, **cnn) for kind in ("fp32", "bf16"))
    high.learn(60)
    low.learner.flat.copy_(high.learner.flat)
    low.learner.flat_target.copy_(high.learner.flat_target)
    low.learner.refresh()
    high.replay.refresh()
    batch = high.replay.sample_from(torch.rand(high.replay.sampler.noise_shape, dtype=torch.float64))
    exact, rounded = (model.learner.gradient(batch)[0] for model in (high, low))
    assert torch.nn.functional.cosine_similarity(exact, rounded, dim=0) > 0.99
    assert not torch.equal(exact, rounded)


def test_gradients_reach_across_the_sequence_but_not_into_burn_in() -> None:
    model = recurrent(lanes(2, partial(Tiny, length=40)))
    model.learn(100)
    replay = model.replay
    replay.refresh()
    batch = replay.sample_from(torch.rand(replay.sampler.noise_shape, dtype=torch.float64))
    read = {"obs": batch.obs["obs"].clone().requires_grad_()}
    sequences, net = model.replay_config.sequences, model.policy.q_net
    features = net.unroll(read, batch.extra, sequences.warmup_T, sequences.batch_T)
    features.trained[-1].sum().backward()
    reached = read["obs"].grad.view(-1, 5, 2).abs().sum((1, 2)) > 0
    assert reached.tolist() == [False] * 4 + [True] * 6 + [False]


class Told:
    """A value net that answers with what it was told, by name of the memory."""

    def __init__(self, now: torch.Tensor, then: torch.Tensor) -> None:
        self.values = {0.0: now, 1.0: then}

    def __call__(self, obs: Any, mask: Any = None) -> Any:
        from sb_dqn.nn.heads.scalar import ScalarValue

        return ScalarValue(self.values[float(obs["which"])])


def test_worked_target_with_decoys() -> None:
    """r = [2, 1], gamma 0.997, n = 2: y = 3.3524192190; the online net selects action 1 (3), decoys are 99, 98, 66."""
    from sb_dqn.types import Batch

    now, then = {"which": torch.tensor(0.0)}, {"which": torch.tensor(1.0)}
    online = Told(torch.tensor([[98.0, 0.5, 66.0]]), torch.tensor([[1.0, 9.0, 2.0]]))
    target = Told(torch.tensor([[99.0, 99.0, 99.0]]), torch.tensor([[66.0, 3.0, 99.0]]))
    return_, discount = torch.tensor([2 + 0.997]), torch.tensor([0.997**2])
    batch = Batch(now, torch.tensor([1]), return_, discount, then, torch.ones(1), torch.zeros(2, 1, dtype=torch.int64))
    objective = QLearning(Bootstrap(double_q=True), "mse", transform=rescaling(1e-3))
    loss, facts = objective(online, target, batch)
    assert float(facts["priority"]) == pytest.approx(3.3524192190 - 0.5, abs=1e-6)
    assert float(loss) == pytest.approx(0.5 * (3.3524192190 - 0.5) ** 2, rel=1e-6)
    _ended, facts = objective(online, target, batch._replace(discount=torch.zeros(1)))
    assert float(facts["priority"]) == pytest.approx(1.0022468593 - 0.5, abs=1e-6)


def test_lanes_are_told_apart_and_begin_with_zeros() -> None:
    model = recurrent(lanes(3, partial(Tiny, length=4)))
    model.learn(60)
    ring = model.replay.ring
    state = ring.columns["state"].view(-1, 3, 12)
    assert not torch.equal(state[:, 0], state[:, 1])
    fresh = model.collector.actor.selector.recurrent_state.state.copy()
    model.learn(3)
    assert not np.array_equal(fresh, model.collector.actor.selector.recurrent_state.state)


# -- predict


def play(model: Any, count: int, steps: int, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Observations, rewards and begins of a stream that never was, and what `predict` makes of each."""
    rng = np.random.default_rng(seed)
    begins = rng.random((steps, count)) < 0.2
    begins[0] = True
    obs = rng.normal(size=(steps, count, 2)).astype(np.float32)
    reward = np.where(begins, 0.0, rng.normal(size=(steps, count))).astype(np.float32)
    state, actions, states = None, [], []
    for t in range(steps):
        action, state = model.predict(obs[t], state, begins[t], deterministic=True, reward=reward[t])
        actions.append(action)
        states.append(state["memory"])
    return actions, states


@pytest.fixture(scope="module")
def learned() -> Any:
    return recurrent(lanes(2), policy_kwargs={**SMALL, "previous_reward": True}).learn(80)


def test_many_at_once_are_as_each_alone(learned: Any) -> None:
    rng = np.random.default_rng(1)
    obs, reward = rng.normal(size=(12, 3, 2)).astype(np.float32), rng.normal(size=(12, 3)).astype(np.float32)
    begins = np.zeros((12, 3), bool)
    begins[0], begins[5, 1] = True, True
    reward[begins] = 0.0
    together, state = [], None
    for t in range(12):
        action, state = learned.predict(obs[t], state, begins[t], deterministic=True, reward=reward[t])
        together.append(action)
    for lane in range(3):
        state = None
        for t in range(12):
            action, state = learned.predict(
                obs[t, lane], state, begins[t, lane : lane + 1], deterministic=True, reward=reward[t, lane]
            )
            assert np.shape(action) == ()
            assert action == together[t][lane]


def test_an_episode_that_begins_forgets(learned: Any) -> None:
    obs = np.ones((1, 2), np.float32)
    first, state = learned.predict(obs, deterministic=True)
    _, later = learned.predict(obs, state, deterministic=True, reward=[0.5])
    again, fresh = learned.predict(obs, later, np.array([True]), deterministic=True, reward=[0.5])
    assert not np.allclose(later["memory"], state["memory"])
    np.testing.assert_array_equal(fresh["memory"], state["memory"])
    assert again == first


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another number": ({"count": 3}, "state must hold arrays of shape .* for 3 observations"),
    "no state": (
        {"state": None, "episode_start": np.array([False, True])},
        "episode_start must be True for all observations if state is None, got False for observation 0",
    ),
    "foreign": ({"state": "x"}, "state must be None or the state that the last predict returned"),
    "a tensor": ({"state": np.zeros((2, 12))}, "state must be None or the state that the last predict returned"),
    "begins": ({"episode_start": np.zeros(3, bool)}, r"episode_start must have shape \(2,\), got \(3,\)"),
    "no reward": ({"reward": None}, "reward must be the last reward inside an episode.*Pass predict"),
    "rewards": ({"reward": [1.0]}, "reward must be 2 finite numbers"),
    "NaN": ({"reward": [1.0, np.nan]}, "reward must be 2 finite numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_predict_refuses(learned: Any, case: str) -> None:
    given, message = BAD[case]
    _, state = learned.predict(np.zeros((2, 2)), deterministic=True)
    kwargs = {"state": state, "reward": [0.0, 0.0], **given}
    count = kwargs.pop("count", 2)
    with pytest.raises(SpaceError, match=message):
        learned.predict(np.zeros((count, 2)), deterministic=True, **kwargs)


def test_evaluation_carries_the_state(learned: Any) -> None:
    """As `predict` by hand on one env and on many; without a state the answers would be those of a beginning."""
    asked: list[Any] = []
    predict = learned.predict

    def listen(observation: Any, **kwargs: Any) -> Any:
        asked.append(kwargs)
        return predict(observation, **kwargs)

    learned.predict = listen
    try:
        evaluate_policy(learned, lanes(3), n_eval_episodes=6)
    finally:
        del learned.predict
    assert asked[0]["state"] is None
    assert all(kwargs["state"] is not None for kwargs in asked[1:])
    assert any(float(np.abs(kwargs["reward"]).sum()) > 0 for kwargs in asked)
    assert sum(int(kwargs["episode_start"].any()) for kwargs in asked) >= 2


# -- priorities of new sequences


def listened(model: Any) -> list[tuple[float, float]]:
    """Of sequences that are drawn, what they would enter with, and what is fed back."""
    found: list[tuple[float, float]] = []
    gradient, view = model.learner.gradient, model.replay.view

    def listen(batch: Any) -> Any:
        flat, priority, report = gradient(batch)
        entering = view.input_priorities(*batch.place)
        found.extend(zip(entering.tolist(), priority.tolist(), strict=True))
        return flat, priority, report

    model.learner.gradient = listen
    return found


@pytest.mark.parametrize("actions", ["discrete", "multi discrete"])
def test_new_sequences_enter_with_what_is_fed_back(actions: str) -> None:
    """Frozen weights, so the actor's values are the learner's: over branches |delta| is averaged, not delta."""
    game = partial(Choices, actions=actions, length=9)
    model = recurrent([game] * 2, prioritized_replay=True)
    model.rate_schedule = lambda step, horizon: 0.0
    found = listened(model)
    model.learn(120)
    entering, fed_back = np.array(found).T
    known = ~np.isnan(entering)
    assert known.sum() > 100
    np.testing.assert_allclose(entering[known], fed_back[known], rtol=1e-4)


@pytest.mark.parametrize("priority", ["kl", "cross_entropy"])
def test_new_sequences_of_c51_enter_with_the_largest_divergence_so_far(priority: str) -> None:
    """|delta| would be of another scale: returns up to 500, divergences of a few nats."""
    settings: Any = {"v_min": 0.0, "v_max": 500.0, "priority": priority, "prioritized_replay": {"alpha": 1.0}}
    model = recurrent(lanes(2), algorithm=CategoricalDQN, **settings)
    model.learn(80)
    sampler, ring = model.replay.sampler, model.replay.ring
    assert sampler.input_priorities is None
    assert not ring.columns.keys() & {"q_taken", "q_best"}
    assert float(sampler.tree.leaves.max()) == float(sampler.largest) < 10.0


def test_priorities_in_units_of_reward_are_refused_beside_divergences() -> None:
    asked: dict[str, Any] = {"sequences": {**SEQUENCES, "input_priorities": True}}
    with pytest.raises(ConfigurationError, match="input_priorities must be unset where priorities are not TD errors"):
        recurrent(Tiny(), algorithm=CategoricalDQN, prioritized_replay=True, **asked)
    no_longer: dict[str, Any] = {"prioritized_replay": True, "sequences": {**SEQUENCES, "input_priorities": False}}
    for given in (asked, no_longer):  # without priorities nobody asks for those of new sequences
        assert recurrent(Tiny(), algorithm=CategoricalDQN, **given).replay.sampler.input_priorities is None
    for head in HEADS.keys() - {"C51"}:
        for given in ({}, asked):
            model = recurrent(Tiny(), algorithm=HEADS[head][0], prioritized_replay=True, **given)
            assert model.replay.sampler.input_priorities is not None
    own = ReturnModel(Categorical(5), CategoricalObjective, td_priority=True)
    assert (own.feeds_td_errors, ReturnModel(Categorical(5), CategoricalObjective).feeds_td_errors) == (True, False)


# -- R2D2


def test_r2d2_learns_saves_and_loads(tmp_path: Path) -> None:
    model: Any = quick(lanes(4), algorithm=R2D2)
    assert R2D1 is R2D2
    model.learn(120)
    assert model._n_updates > 5
    assert isinstance(model.replay.view, SequenceView)
    model.save(tmp_path / "m")
    loaded = R2D2.load(tmp_path / "m", env=lanes(4))
    assert loaded.arguments == {**model.arguments, "device": "auto"}
    actions, states = play(model, 3, 10)
    others, their_states = play(loaded, 3, 10)
    np.testing.assert_array_equal(actions, others)
    np.testing.assert_allclose(states, their_states, atol=1e-6)
    loaded.learn(60)


def test_the_replay_ratio_says_what_it_counts() -> None:
    assert update_cadence(7_680, 1.0) == (7_680, 1)
    assert update_cadence(7_680, 4.0) == (1_920, 1)
    assert update_cadence(8, 32.0) == (1, 4)
    assert update_cadence(48, 32.0) == (3, 2)
    assert update_cadence(48, 70.0) == (24, 35)
    assert update_cadence(7_680, 0.1) == (76_800, 1)  # a tenth, though no float is
    assert update_cadence(7_680, 1.3) == (76_800, 13)
    trained: Any = quick(lanes(2), algorithm=R2D2, replay_ratio=2.0, count_burn_in=False)
    counted: Any = quick(lanes(2), algorithm=R2D2, replay_ratio=2.0)
    assert (trained.replay.schedule.train_freq, counted.replay.schedule.train_freq) == (4 * 4 // 2, (4 + 2) * 4 // 2)
    assert trained.target_config.interval == 20
    assert quick(lanes(2), algorithm=R2D2, target_update_interval=None).target_config.interval == 2_500 * 6
    model = trained.learn(120)
    consumed = model._n_updates * 16 / (120 - 10)
    assert consumed == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("num_lanes", a_few([1, 3], 3))
@pytest.mark.parametrize(("ratio", "updates"), [(32, 200), (70, 438), (0.9, 5)])
def test_the_replay_ratio_is_kept_exactly(ratio: float, updates: int, num_lanes: int) -> None:
    """300 env steps after the first 60, 48 steps an update: floor(360 r / 48) - floor(60 r / 48), a tick's share at once."""
    lengths = {"batch_T": 8, "batch_B": 4, "warmup_T": 4, "store_rnn_state_interval": 4}
    made = lanes(num_lanes, partial(Tiny, length=10_000))  # without a reset, whose row is no env step
    model: Any = quick(made, algorithm=R2D2, replay_ratio=ratio, learning_starts=60, n_steps=1, **lengths)
    counts: list[int] = []
    asked: Any = model.replay.updates_due

    def listen() -> int:
        counts.append(asked())
        return counts[-1]

    model.replay.updates_due = listen
    nothing = torch.zeros(3)
    model.gradient_step = lambda: Update(nothing)  # they are counted, not made
    model.learn(360)
    assert model._n_updates == sum(counts) == updates
    assert max(counts) == math.ceil(num_lanes * ratio / 48)


def test_lanes_keep_an_epsilon_of_their_own() -> None:
    model: Any = quick(lanes(8), algorithm=R2D2)
    want = [0.4 ** (1 + 7 * i / 7) for i in range(8)]
    np.testing.assert_allclose(model.exploration.lane_epsilons, want, rtol=1e-6)
    model.learn(50)
    np.testing.assert_allclose(model.exploration.lane_epsilons, want, rtol=1e-6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no memory": ({"policy": "MlpPolicy"}, "policy must be recurrent, got 'MlpPolicy'. Use 'MlpLstmPolicy'"),
    "batch_size": ({"batch_size": 4}, "batch_size must be unset for R2D2, got 4. Set batch_B"),
    "train_freq": ({"train_freq": 4}, "train_freq must be unset for R2D2, got 4. Set replay_ratio"),
    "ratio": ({"replay_ratio": 0}, "replay_ratio must be .* got 0"),
    "count": ({"count_burn_in": 1}, "count_burn_in must be .* got 1"),
    "batch_B": ({"batch_B": 0}, "batch_B must be .* got 0"),
    "interval": ({"store_rnn_state_interval": 3}, "must be a multiple of store_rnn_state_interval=3, got"),
    "eps": ({"value_rescale_eps": -1.0}, "value_rescale_eps must be .* got -1.0"),
    "eta": ({"pri_eta": 2}, "pri_eta must be .* got 2"),
    "munchausen": ({"munchausen": True}, "munchausen must be False with value rescaling"),
    "burn-in": ({"warmup_T": 400}, "a lane needs one sequence with its burn-in and bootstrap rows"),
    "compile": ({"torch_compile": True}, "torch_compile must be False for recurrent policies"),
    "rnn": ({"policy_kwargs": {"rnn": "rnn"}}, r"policy_kwargs\['rnn'\] must be .* got 'rnn'"),
    "units": ({"policy_kwargs": {"lstm_hidden_size": 0}}, r"policy_kwargs\['lstm_hidden_size'\] must be .* got 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_r2d2_refuses(case: str) -> None:
    given, message = REFUSED[case]
    model_kwargs = dict(given)
    policy = model_kwargs.pop("policy", "MlpLstmPolicy")
    settings: dict[str, Any] = {
        "batch_T": 4,
        "batch_B": 4,
        "warmup_T": 2,
        "store_rnn_state_interval": 2,
        "buffer_size": 200,
    }
    with pytest.raises(ConfigurationError, match=message):
        R2D2(policy, Tiny(), **{**settings, **model_kwargs})


def test_what_others_refuse() -> None:
    with pytest.raises(ConfigurationError, match="sequences must be None for feed-forward policies"):
        quick(sequences={"batch_T": 32})
    with pytest.raises(ConfigurationError, match="sequences must be None or settings"):
        recurrent(Tiny(), sequences=False)
    with pytest.raises(ConfigurationError, match="must be feed-forward for PQN"):
        quick(lanes(2), "MlpLstmPolicy", PQN)
    with pytest.raises(ConfigurationError, match="must be among .* got 'batch_t'"):
        recurrent(Tiny(), sequences={"batch_t": 3})
    with pytest.raises(ConfigurationError, match="munchausen must be False with value rescaling"):
        QLearning(Bootstrap(munchausen=Munchausen()), transform=rescaling(1e-3))


def test_an_objective_without_priorities_gives_sequences_those_of_their_losses() -> None:
    model = recurrent(lanes(2, partial(Tiny, length=20)), prioritized_replay=True, sequences={**SEQUENCES, "eta": 1.0})
    objective = model.learner.objective
    inner = objective.inner

    def without_priority(*inputs: Any) -> Any:
        loss, extras = inner(*inputs)
        return loss, {name: value for name, value in extras.items() if name != "priority"}

    objective.inner = without_priority
    model.learn(60)
    assert model._n_updates > 0
    batch = model.replay.sample(4)
    loss, extras = objective(model.policy.q_net, model.policy.q_net_target, batch)
    largest = (loss * (batch.weight > 0)).view(6, 4).max(0).values  # with eta 1, of the 6 steps of each of 4 sequences
    torch.testing.assert_close(extras["priority"], largest.detach())
    assert not extras["priority"].requires_grad


def test_the_log_leaves_out_steps_beyond_the_end_of_an_episode() -> None:
    model = recurrent(lanes(2, partial(Tiny, length=3)), learning_starts=40)
    model.learn(200)
    batch = model.replay.sample(16)
    counts = batch.weight > 0
    assert 0 < counts.float().mean() < 0.5
    objective = model.learner.objective
    seen: dict[str, Any] = {}

    def spy(online: Any, target: Any, unrolled: Any) -> Any:
        loss, extras = inner(online, target, unrolled)
        seen.update(extras)
        return loss, extras

    inner, objective.inner = objective.inner, spy
    reported = model.learner.evaluate(model.policy.q_net, model.policy.q_net_target, batch)[1]
    distance = seen["priority"]
    assert float(reported["td_error"]) == pytest.approx(float(distance[counts].mean()), rel=1e-5)
    assert float(reported["td_error"]) != pytest.approx(float(distance.mean()), rel=0.05)
