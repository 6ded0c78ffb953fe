"""A2C and PPO that remember: what they are trained on is what they acted on, whatever the stream, the net and the actions."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sb_dqn.algorithms import A2C, PPO, REINFORCE, VPG
from sb_dqn.callbacks import CheckpointCallback
from sb_dqn.envs.make import make_vec_env
from sb_dqn.errors import CheckpointError, ConfigurationError, SpaceError
from sb_dqn.evaluation import evaluate_policy
from tests.choices import Choices
from tests.continuing import differences
from tests.marks import FULL, a_few, first_few
from tests.tiny import SMALL_CNN, Tiny, lanes

pytestmark = pytest.mark.usefixtures("eagerly")

SMALL = {"lstm_hidden_size": 6, "net_arch": [8]}
TOLD = {**SMALL, "previous_action": True, "previous_reward": True}


def recurrent(env: Any, policy: str = "MlpLstmPolicy", algorithm: Any = PPO, **kwargs: Any) -> Any:
    given: dict[str, Any] = {"policy_kwargs": SMALL, "n_steps": 12, "seed": 0, "device": "cpu"}
    if algorithm is PPO:
        given |= {"batch_size": 12, "n_epochs": 1}
    return algorithm(policy, env, **{**given, **kwargs})


def frozen(model: Any) -> Any:
    """The nets stay as they are, everything else goes on."""
    model.rate_schedule = lambda step, horizon: 0.0
    return model


def told(net: Any, batch: Any, recall: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and values of a training pass."""
    with torch.no_grad():
        policy, value, _ = net(recall(batch), batch.mask)
        return policy.log_prob(batch.extra.get("u", batch.action)), value


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "A2C": {"algorithm": A2C},
    "one memory": {"policy_kwargs": {**SMALL, "shared_lstm": True, "n_lstm_layers": 2}},
    "value without memory": {"policy_kwargs": {**TOLD, "critic_lstm": False, "encoder_arch": [5]}},
    "gru": {"policy_kwargs": {**TOLD, "rnn": "gru", "encoder_arch": [5]}},
    "own features": {"policy_kwargs": {**TOLD, "share_features_extractor": False}},
    "short sequences": {"sequence_length": 3},
    "statistics": {"normalize_observations": True, "normalize_rewards": True},
    "frames": {"observation": "frames", "policy": "CnnLstmPolicy"},
    "a dict": {"observation": "dict", "policy": "MultiInputLstmPolicy", "policy_kwargs": TOLD},
    "branches": {"actions": "multi discrete", "policy_kwargs": TOLD},
}


@pytest.mark.parametrize(
    ("case", "kind"),
    a_few(
        [
            *((case, "NEXT_STEP") for case in CASES),
            *((case, "SAME_STEP") for case in ("plain", "short sequences", "branches")),
        ],
        "plain",
        ("branches", "NEXT_STEP"),
        ("frames", "NEXT_STEP"),
    ),
)
def test_training_sees_what_the_actor_had(case: str, kind: str) -> None:
    """Frozen weights: at every row, over ends and time limits within a sequence, to 1e-5."""
    given = dict(CASES[case])
    observation, actions = given.pop("observation", "vector"), given.pop("actions", "discrete")
    game = partial(Choices, observation, actions, observation == "vector", length=5)
    if observation == "frames":
        given["policy_kwargs"] = {**SMALL, "features_extractor_kwargs": SMALL_CNN}
    if observation == "vector":
        given["action_mask"] = "info"
    env = [game] * 3 if observation == "frames" else SyncVectorEnv([game] * 3, autoreset_mode=AutoresetMode[kind])
    model = frozen(recurrent(env, **given))
    compared, inside = watch(model)
    model.learn(150)
    assert model._n_updates >= 4
    assert len(compared) > 100
    assert max(compared) < 1e-5
    assert sum(inside) > 10


def watch(model: Any, spoil: Any = None) -> tuple[list[float], list[int]]:
    """How far the training pass is from acting, for each row that counts; and how many episodes begin inside a sequence."""
    compared: list[float] = []
    inside: list[int] = []
    objective, gradient = model.learner.objective, model.learner.gradient

    def listen(batch: Any) -> Any:
        seen = batch if spoil is None else batch._replace(extra=spoil(dict(batch.extra)))
        logp, value = told(model.policy.net, seen, partial(objective.unroll, model.policy.net))
        counts = batch.weight > 0
        off = torch.maximum((logp - batch.extra["log_prob"]).abs(), (value - batch.extra["value"]).abs())
        compared.extend(off[counts].tolist())
        begins = (batch.extra["begins"] > 0) & counts
        inside.append(int(begins.view(objective.length, -1)[1:].sum()))
        return gradient(batch)

    model.learner.gradient = listen
    return compared, inside


SPOILS: dict[str, Any] = {
    "not reset": lambda extra: {**extra, "begins": torch.zeros_like(extra["begins"])},
    "always reset": lambda extra: {**extra, "begins": torch.ones_like(extra["begins"])},
    "another state": lambda extra: {**extra, "state": extra["state"] + 0.5},
}


@pytest.mark.parametrize("spoil", a_few(SPOILS, "not reset"))
def test_the_test_above_sees_a_state_that_is_wrong(spoil: str) -> None:
    model = frozen(recurrent(lanes(3, partial(Tiny, length=8))))  # rollouts of 12 ticks do not begin where episodes do
    compared, _ = watch(model, SPOILS[spoil])
    model.learn(150)
    assert np.mean(np.array(compared) > 1e-4) > 0.1


class Walk:
    """Values of every row that arrives, by the nets, one step at a time from zeros at each beginning."""

    def __init__(self, model: Any) -> None:
        self.model, self.rows = model, model.rollout
        self.state: dict[tuple[int, int], torch.Tensor] = {}
        self.worst: list[float] = []
        self.kinds = {"truncated": 0, "open": 0, "acted": 0}
        prepare = self.rows.view.prepare

        def listen(start: Any, extra: Any) -> None:
            for lane in range(self.rows.ring.num_lanes):
                for row in range(int(start[lane]), int(self.rows.ring.cursor[lane])):
                    self.look(lane, row, extra["value"])
            prepare(start, extra)

        self.rows.view.prepare = listen

    def look(self, lane: int, row: int, value: Any) -> None:
        """Steps into one row, and compares."""
        ring, policy = self.rows.ring, self.model.policy
        at = row % ring.rows * ring.num_lanes + lane
        before = (row - 1) % ring.rows * ring.num_lanes + lane
        begins = row == 0 or bool(ring.last[before])
        obs = {key: torch.as_tensor(x) for key, x in self.rows._observe(np.array([lane]), np.array([row]))[0].items()}
        none = torch.as_tensor(policy.no_action(1))
        action = none if begins else ring.actions_at(torch.tensor([before]))
        reward = torch.zeros(1) if begins else ring.reward[at].view(1)
        state = torch.zeros(1, policy.state_size) if begins else self.state[lane, row - 1]
        with torch.no_grad():
            expected, self.state[lane, row] = policy.value_step(obs, None, action, reward, state)
        if ring.terminal[at]:
            return
        is_open = row == ring.cursor[lane] - 1
        self.kinds["open" if is_open else "truncated" if ring.last[at] else "acted"] += 1
        self.worst.append(abs(float(expected) - float(value[row % ring.rows, lane])))


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("algorithm", a_few([A2C, PPO], PPO))
def test_what_is_bootstrapped_from_was_remembered(algorithm: Any, kind: str) -> None:
    """Of the true last observation of a truncated episode, and of the one that has just arrived."""
    env = SyncVectorEnv([partial(Tiny, length=n, truncates=True) for n in (4, 5)], autoreset_mode=AutoresetMode[kind])
    model = frozen(recurrent(env, algorithm=algorithm, policy_kwargs=TOLD))
    walk = Walk(model)
    model.learn(120)
    assert min(walk.kinds.values()) > 8
    assert max(walk.worst) < 1e-5
    returns = model.rollout.view
    assert bool((returns.weight > 0).any())


def test_a_second_learn_begins_anew() -> None:
    model = frozen(recurrent(lanes(2, partial(Tiny, length=9)), policy_kwargs=TOLD))
    compared, _ = watch(model)
    for _ in range(6):
        model.learn(17)
    assert model._n_updates >= 4
    assert max(compared) < 1e-5


def test_box_actions() -> None:
    model = frozen(recurrent(make_vec_env("Pendulum-v1", 2), policy_kwargs=TOLD))
    compared, _ = watch(model)
    model.learn(60)
    assert max(compared) < 1e-4 * 20  # log-densities of actions in units of 2, values of returns of hundreds


def test_gradients_end_where_an_episode_begins() -> None:
    model = recurrent(lanes(1, partial(Tiny, length=5)))
    net = model.policy.net
    seen = torch.randn(8, 2, requires_grad=True)
    begins = torch.zeros(8, 1, dtype=torch.bool)
    begins[5] = True
    state = torch.randn(1, model.policy.state_size, requires_grad=True)
    features, _ = net.unroll({"obs": seen}, None, None, state, begins)
    features["features"][-1].sum().backward()
    assert seen.grad is not None
    assert (seen.grad.abs().sum(1) > 0).tolist() == [False] * 5 + [True] * 3
    assert state.grad is None or not bool(state.grad.any())


@pytest.mark.parametrize(
    ("n_steps", "lanes", "batch_size", "length", "expected"),
    first_few(
        [
            (12, 3, 12, None, (3, 12, 12)),
            (12, 3, 12, 4, (3, 12, 4)),
            (12, 3, 24, None, (2, 24, 12)),  # 3 stretches in two minibatches: one place stays empty
            (12, 1, 8, None, (2, 6, 6)),  # the longest divisor that fits
            (7, 2, 4, None, (4, 4, 1)),  # only 1 divides
            (12, 2, 500, 3, (1, 24, 3)),
        ],
        3,
    ),
)
def test_minibatches(n_steps: int, lanes: int, batch_size: int, length: int | None, expected: Any) -> None:
    game = [partial(Tiny, length=5)] * lanes
    model = recurrent(game, n_steps=n_steps, batch_size=batch_size, sequence_length=length)
    rollout = model.rollout
    assert (rollout.num_minibatches, rollout.batch_size, rollout.length) == expected
    seen: list[Any] = []
    gradient = model.learner.gradient

    def listen(batch: Any) -> Any:
        place = batch.place.T[batch.weight > 0].tolist()
        seen.extend(map(tuple, place))
        along = batch.place.view(2, rollout.length, -1)
        assert bool((along[0] == along[0, 0]).all())  # one lane
        return gradient(batch)

    model.learner.gradient = listen
    model.learn(n_steps * lanes + 1)
    assert len(set(seen)) == len(seen) > 0  # each sample once
    assert f"in sequences of {rollout.length}" in rollout.describe()


@pytest.mark.parametrize("algorithm", [A2C, PPO])
@pytest.mark.parametrize("at", a_few([48, 55], 55))
def test_resumed_bit_for_bit(algorithm: Any, at: int, tmp_path: Path) -> None:
    """At the end of a rollout, and within one and an episode."""
    settings: dict[str, Any] = {"policy_kwargs": TOLD, "normalize_observations": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = recurrent(make_vec_env("CartPole-v1", 2), algorithm=algorithm, **settings)
        whole = model.learn(100, callback=CheckpointCallback(at, tmp_path, full=True))
        path = min(tmp_path.glob("*.zip"), key=lambda found: int(found.stem.split("_")[2]))
        resumed = algorithm.load(path, env=make_vec_env("CartPole-v1", 2), device="cpu")
        assert 0 < resumed.num_timesteps < whole.num_timesteps
        resumed.resume(callback=CheckpointCallback(at, tmp_path / "again", full=True))
    assert whole._n_updates == resumed._n_updates > 2
    assert differences(whole, resumed) == []


def test_saved_and_loaded_it_acts_alike(tmp_path: Path) -> None:
    model = recurrent(lanes(2), policy_kwargs=TOLD).learn(60)
    model.save(tmp_path / "m")
    loaded = PPO.load(tmp_path / "m")
    states: list[Any] = [None, None]
    rng = np.random.default_rng(0)
    for t in range(9):
        obs, reward = rng.normal(size=(3, 2)).astype(np.float32), rng.normal(size=3)
        answers = []
        for i, one in enumerate((model, loaded)):
            begins = np.array([t == 0, t in (0, 4), t == 0])
            action, states[i] = one.predict(obs, states[i], begins, deterministic=True, reward=reward)
            answers.append(action)
        np.testing.assert_array_equal(*answers)
        np.testing.assert_allclose(states[0]["memory"], states[1]["memory"], atol=1e-6)
    action, _ = loaded.predict(obs[0])
    assert action in (0, 1, 2)
    with pytest.raises(SpaceError, match="reward must be the last reward"):
        loaded.predict(obs, states[1])


def test_predict_remembers_as_acting_does() -> None:
    """The state that `predict` carries is the one of the actor on the same observations."""
    model = recurrent(lanes(1, partial(Tiny, length=30)))
    model.learn(5)
    obs = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    state: Any = None
    expected = torch.zeros(1, model.policy.state_size)
    for one in obs:
        _, state = model.predict(one, state, None, deterministic=True)
        with torch.no_grad():
            given = {"obs": torch.as_tensor(one).unsqueeze(0)}
            _, expected = model.policy.value_step(given, None, torch.tensor([-1]), torch.zeros(1), expected)
        np.testing.assert_allclose(state["memory"], expected.numpy(), atol=1e-6)
    drawn = {int(model.predict(obs[0])[0]) for _ in range(60)}
    assert len(drawn) > 1


def test_evaluation_carries_the_state() -> None:
    model = recurrent(lanes(2), policy_kwargs=TOLD).learn(30)
    asked: list[Any] = []
    predict = model.predict

    def listen(observation: Any, **kwargs: Any) -> Any:
        asked.append(kwargs)
        return predict(observation, **kwargs)

    model.predict = listen
    evaluate_policy(model, lanes(3), n_eval_episodes=4)
    assert asked[0]["state"] is None
    assert all(kwargs["state"] is not None for kwargs in asked[1:])


class Cue(Tiny):
    """Shows a sign at the first step alone; the action at the last step must be that sign."""

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        self.sign = int(self.np_random.integers(2))
        return np.array([2.0 * self.sign - 1.0, 1.0], np.float32), {}

    def step(self, action: Any) -> Any:
        *_, truncated, info = super().step(action)
        over = self.t >= self.length
        right = 1.0 if int(action) == self.sign else -1.0
        return np.zeros(2, np.float32), right * over, over, truncated, info


@FULL
@pytest.mark.parametrize(("policy", "solves"), [("MlpLstmPolicy", True), ("MlpPolicy", False)])
def test_it_learns_what_needs_a_memory(policy: str, solves: bool) -> None:
    kwargs = {"lstm_hidden_size": 16, "net_arch": []} if solves else {"net_arch": [16]}
    game = partial(Cue, length=4)
    model = PPO(
        policy, [game] * 16, n_steps=16, batch_size=128, n_epochs=8, learning_rate=1e-2, seed=0, device="cpu",
        policy_kwargs=kwargs,
    )  # fmt: skip
    model.learn(5_000)
    mean: Any = evaluate_policy(model, [game] * 8, n_eval_episodes=80)[0]
    assert (mean > 0.95) if solves else (mean < 0.5)


@pytest.mark.parametrize("algorithm", [A2C, PPO])
def test_what_comes_before_the_memories_computes_in_bfloat16(algorithm: Any, tmp_path: Path) -> None:
    kwargs = {**SMALL, "features_extractor_kwargs": SMALL_CNN, "share_features_extractor": False}
    games = lanes(2, partial(Tiny, "image"))
    model = recurrent(games, "CnnLstmPolicy", algorithm, precision="bf16", policy_kwargs=kwargs).learn(72)
    learner, net = model.learner, model.policy.net
    assert bool(learner.finite)
    for name, parameter in learner.online.named_parameters():
        before = name.startswith(("features", "value_features", "encoders"))
        assert parameter.dtype == (torch.bfloat16 if before else torch.float32), name
        assert before or parameter.data_ptr() == net.get_parameter(name).data_ptr()
    assert learner.low.numel() == sum(p.numel() for p in learner.online.parameters() if p.dtype == torch.bfloat16)
    torch.testing.assert_close(learner.low, learner.flat[: learner.low.numel()].bfloat16(), rtol=0, atol=0)
    model.save(tmp_path / "model")
    assert torch.equal(algorithm.load(tmp_path / "model", device="cpu").learner.low, learner.low)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "compile": ({"torch_compile": True}, "torch_compile must be False for recurrent policies"),
    "no divisor": (
        {"sequence_length": 5},
        "sequence_length must be a divisor of n_steps=12, at most batch_size=12, got 5",
    ),
    "too long": (
        {"batch_size": 4, "sequence_length": 6},
        "sequence_length must be a divisor of .*batch_size=4, got 6. Give 4",
    ),
    "none": ({"sequence_length": 0}, "sequence_length must be .* got 0"),
    "A2C": (
        {"algorithm": A2C, "sequence_length": 24},
        "sequence_length must be a divisor of n_steps=12, got 24. Give 12",
    ),
    "no memory": (
        {"policy": "MlpPolicy", "policy_kwargs": {}, "sequence_length": 4},
        "must be None for feed-forward policies",
    ),
    "rnn": ({"policy_kwargs": {"rnn": "rnn"}}, r"policy_kwargs\['rnn'\] must be .* got 'rnn'"),
    "units": ({"policy_kwargs": {"lstm_hidden_size": 0}}, r"\['lstm_hidden_size'\] must be .* got 0"),
    "no critic": ({"policy_kwargs": {"critic_lstm": 0}}, r"\['critic_lstm'\] must be .* got 0"),
    "shared without critic": (
        {"policy_kwargs": {"shared_lstm": True, "critic_lstm": False}},
        r"critic_lstm'\] must be True with shared_lstm=True",
    ),
    "shared": ({"policy_kwargs": {"shared_lstm": 1}}, r"\['shared_lstm'\] must be .* got 1"),
    "one memory of two": (
        {"policy_kwargs": {"shared_lstm": True, "share_features_extractor": False}},
        "share_features_extractor.. must be True with shared_lstm=True",
    ),
    "widths": ({"policy_kwargs": {"encoder_arch": 5}}, r"\['encoder_arch'\] must be a list of widths, got 5"),
    "a Dict": ({"policy": "MultiInputLstmPolicy"}, "observation_space must be a Dict for MultiInputPolicy"),
    "key": ({"policy_kwargs": {"lstm_size": 5}}, "got 'lstm_size'.*'lstm_hidden_size'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(ConfigurationError, match=message):
        recurrent(Tiny(), **given)


@pytest.mark.parametrize("algorithm", [REINFORCE, VPG])
def test_methods_of_whole_episodes_refuse_a_memory(algorithm: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be feed-forward for REINFORCE and VPG"):
        algorithm("MlpLstmPolicy", Tiny())


def test_a_checkpoint_of_other_lanes_is_refused(tmp_path: Path) -> None:
    model = recurrent(make_vec_env("CartPole-v1", 2))
    model.learn(30, callback=CheckpointCallback(20, tmp_path, full=True))
    path = next(tmp_path.glob("*.zip"))
    with pytest.raises((CheckpointError, ConfigurationError), match="lanes"):
        PPO.load(path, env=make_vec_env("CartPole-v1", 3), device="cpu").resume()
