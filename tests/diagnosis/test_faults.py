"""Ten planted faults are named, five healthy runs have no finding, and a diagnosis changes nothing of a run."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from sb_dqn.algorithms import ALGORITHMS, DQN, PPO, SAC, Rainbow
from sb_dqn.callbacks import DiagnoseCallback
from sb_dqn.diagnosis import model as diagnosis_of_model
from sb_dqn.diagnosis.sample import Sample
from scripts.benchmarks import planted_faults
from tests.marks import SLOW, a_few
from tests.tiny import OBSERVATIONS, quick

pytestmark = pytest.mark.usefixtures("eagerly")
SANE = {**planted_faults.SANE, "buffer_size": 5_000, "exploration_fraction": 0.5}
FAULTS, CARTPOLE = planted_faults.FAULTS, planted_faults.CARTPOLE


@SLOW
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(fault: str) -> None:
    name, changes = FAULTS[fault]
    model = planted_faults.make(**changes).learn(800)
    findings = [finding.name for finding in model.diagnose().findings]
    assert name in findings
    # what else is named follows from the fault: a rate that kills units, values beyond all returns
    assert set(findings) <= {
        name,
        "dormant_units",
        "effective_rank",
        "overestimation",
        "never_legal",
        "replay_episodes",
    }


@SLOW
def test_an_epsilon_of_adam_above_the_gradients_is_named() -> None:
    kwargs = {**planted_faults.SANE["policy_kwargs"], "optimizer_kwargs": {"eps": 10.0}}
    findings = planted_faults.make(policy_kwargs=kwargs).learn(800).diagnose().findings
    assert [finding.name for finding in findings] == ["adam_epsilon"]


def test_a_model_without_updates_has_that_finding_alone() -> None:
    with pytest.warns(UserWarning, match="will make no update"):
        model = quick(CARTPOLE, learning_starts=100).learn(60)
    assert [finding.name for finding in model.diagnose().findings] == ["updates"]
    assert "updates" not in quick(CARTPOLE).diagnose().values, "before its first step there is nothing to find"


def test_updates_that_begin_later_in_the_run_are_not_missed() -> None:
    looks = DiagnoseCallback(every=80, verbose=0)  # one look, before learning_starts
    model = quick(CARTPOLE, learning_starts=100).learn(150, callback=looks)
    assert looks.diagnosis is not None
    assert "updates" not in looks.diagnosis.values
    assert model.diagnose().values["updates"] > 0


@pytest.mark.parametrize(("fraction", "rate"), [(0.1, 0.0), (1.0, 0.2)])
def test_exploration_that_ends_before_updates_begin_is_none(fraction: float, rate: float) -> None:
    settings = {"exploration_fraction": fraction, "exploration_final_eps": 0.0, "learning_starts": 80}
    looks = DiagnoseCallback(every=60, verbose=0)  # one look, before learning_starts
    model = quick(CARTPOLE, **settings).learn(100, callback=looks)  # epsilon falls for 10 or 100 steps
    assert looks.diagnosis is not None
    assert looks.diagnosis.values["exploration"] == model.diagnose().values["exploration"] == pytest.approx(rate)


@pytest.mark.parametrize(
    ("sequences", "steps"), [(None, 1), ({"batch_T": 4, "warmup_T": 4, "store_rnn_state_interval": 4}, 4)]
)
def test_updates_that_are_too_few_for_the_env_steps_are_named(sequences: Any, steps: int) -> None:
    policy, further = ("MlpPolicy", {}) if sequences is None else ("MlpLstmPolicy", {"sequences": sequences})
    model: Any = quick(CARTPOLE, policy, learning_starts=100, train_freq=20, batch_size=2, **further).learn(300)
    diagnosis = model.diagnose()
    assert diagnosis.values["replay_ratio"] == model.counters.n_updates * 2 * steps / 200
    assert ("replay_ratio" in {finding.name for finding in diagnosis.findings}) == (sequences is None)


ACTOR: dict[str, Any] = {"seed": 0, "device": "cpu"}
RECURRENT: dict[str, Any] = {
    **SANE,
    "batch_size": 8,
    "train_freq": 8,
    "sequences": {"batch_T": 8, "warmup_T": 0, "store_rnn_state_interval": 8},
    "policy_kwargs": {"lstm_hidden_size": 32, "net_arch": [32], "encoder_arch": [32]},
}
HEALTHY: dict[str, Callable[[], Any]] = {
    "DQN": lambda: DQN("MlpPolicy", CARTPOLE, **SANE).learn(1_000),
    "Rainbow": lambda: Rainbow("MlpPolicy", CARTPOLE, v_min=0, v_max=100, **SANE).learn(800),
    "PPO": lambda: PPO("MlpPolicy", CARTPOLE, n_steps=512, **ACTOR).learn(2_048),
    "SAC": lambda: SAC(
        "MlpPolicy", "Pendulum-v1", batch_size=64, policy_kwargs={"net_arch": [32, 32]}, buffer_size=5_000, **ACTOR
    ).learn(600),
    "recurrent DQN": lambda: DQN("MlpLstmPolicy", CARTPOLE, **RECURRENT).learn(1_500),
}


@SLOW
@pytest.mark.parametrize("run", HEALTHY)
def test_a_healthy_run_has_no_finding(run: str) -> None:
    diagnosis = HEALTHY[run]().diagnose()
    assert diagnosis.findings == []
    assert {
        "learning_rate",
        "policy_churn",
        "dormant_units",
        "effective_rank",
        "frozen_layers",
    } <= diagnosis.values.keys()


def fingerprint(model: Any) -> str:
    """Hash of the parameters, and of all that a full checkpoint holds."""
    digest = hashlib.sha256()
    for tensor in (*model.policy.state_dict().values(), model.rng.sample.get_state(), torch.get_rng_state()):
        digest.update(tensor.cpu().numpy().tobytes())
    for state in model.learner.optimizer.state.values():
        for value in state.values():
            digest.update(torch.as_tensor(value).cpu().numpy().tobytes())
    for tensor in model._experience.state_dict().values():
        digest.update(tensor.cpu().numpy().tobytes())
    digest.update(str((model.rng.explore.bit_generator.state, model.rng.predict.bit_generator.state)).encode())
    return digest.hexdigest()


@SLOW
@pytest.mark.parametrize("name", a_few(ALGORITHMS, "DQN", "Rainbow", "IQN", "R2D2", "SAC", "PPO", "PQN"))
def test_a_run_is_the_same_bit_for_bit_with_and_without_diagnoses(name: str) -> None:
    def run(callback: Any) -> tuple[str, list[bool]]:
        torch.manual_seed(0)
        rollout = {"n_steps": 32} if name in ("PPO", "PQN") else {}
        model = quick("Pendulum-v1" if name == "SAC" else CARTPOLE, algorithm=ALGORITHMS[name], **rollout)
        model.learn(200, callback=callback)
        return fingerprint(model), [part.training for part in model.policy.modules()]

    looks = DiagnoseCallback(every=16, verbose=0)
    assert run(looks) == run(None)
    assert looks.diagnosis is not None
    assert looks.diagnosis.values["learning_rate"] > 0


@SLOW
@pytest.mark.traced
def test_traced_updates_with_prioritized_replay_are_the_same_with_diagnoses() -> None:
    def run(callback: Any) -> str:
        settings = {"prioritized_replay": True, "dueling": True, "noisy": True, "n_steps": 3}
        return fingerprint(DQN("MlpPolicy", CARTPOLE, **{**SANE, **settings}).learn(400, callback=callback))

    assert run(DiagnoseCallback(every=50, verbose=0)) == run(None)


@SLOW
def test_findings_are_printed_once_and_values_are_logged(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from sb_dqn.logger import configure

    model = DQN("MlpPolicy", CARTPOLE, **{**SANE, "gamma": 0.5})
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(600, callback=DiagnoseCallback(every=100))
    model.logger.close()
    assert capsys.readouterr().out.count("horizon = 2, should be >= 5. Raise gamma") == 1
    assert "diagnose/policy_churn" in (tmp_path / "progress.csv").read_text(encoding="utf-8")


class Branches(gymnasium.Env):
    """Two branches of 3 and 2 actions, of which the mask always forbids the first of each; observations of two kinds."""

    observation_space = OBSERVATIONS["dict with image"]
    action_space = gymnasium.spaces.MultiDiscrete([3, 2])
    info: ClassVar[dict[str, Any]] = {"action_mask": np.array([False, True, True, False, True])}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample(), self.info

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, bool(self.np_random.random() < 0.2), False, self.info


@SLOW
@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_branches_masks_and_dict_observations(algorithm: Any) -> None:
    rollout = {"n_steps": 40} if algorithm is PPO else {}
    model = quick(Branches(), "MultiInputPolicy", algorithm, action_mask="info", **rollout).learn(80)
    values = model.diagnose().values
    assert (values["legal_actions"], values["never_legal"]) == (1.5, 2), "what a shorter branch lacks is no action"
    assert values["observation_scale"] < 3, "bytes are divided by 255"


@SLOW
def test_weights_that_no_update_changed_since_the_last_look_are_named() -> None:
    model: Any = DQN("MlpPolicy", CARTPOLE, **SANE).learn(300)
    before = model.diagnose()
    weight = model.policy.q_net.torso.linears[0].weight
    kept = weight.detach().clone()
    model.learn(100, reset_num_timesteps=False)
    with torch.no_grad():
        weight.copy_(kept)  # as an optimizer would leave it that does not know the parameter
    assert model.diagnose().findings == []
    (finding,) = model.diagnose(since=before).findings
    assert finding.name == "frozen_layers"
    assert "(torso.linears.0.weight)" in finding.sentence


@SLOW
def test_a_loaded_model_is_measured_on_greedy_episodes() -> None:
    model, file = DQN("MlpPolicy", CARTPOLE, **{**SANE, "gamma": 0.5}).learn(400), io.BytesIO()
    model.save(file)
    file.seek(0)
    loaded = DQN.load(file)
    assert "observation_scale" not in loaded.diagnose().values, "there are no rows"
    played = loaded.diagnose(env=CARTPOLE, episodes=2)
    assert {"observation_scale", "overestimation", "reward_scale", "dormant_units"} <= played.values.keys()
    assert [finding.name for finding in played.findings] == ["horizon"]


@SLOW
def test_one_greedy_action_in_all_states_is_named_once_there_were_updates_enough() -> None:
    model: Any = DQN("MlpPolicy", CARTPOLE, **SANE).learn(400)
    with torch.no_grad():
        model.policy.q_net.head.outputs.of_actions.weight.zero_()  # values that do not depend on the state
        model.learner.refresh()
    assert "greedy_actions" not in {finding.name for finding in model.diagnose().findings}
    model.counters.n_updates = 10_000
    diagnosis = model.diagnose()
    assert diagnosis.values["greedy_actions"] == 1
    assert "greedy_actions" in {finding.name for finding in diagnosis.findings}
    healthy: Any = DQN("MlpPolicy", CARTPOLE, **SANE).learn(1_000)
    healthy.counters.n_updates = 10_000
    assert healthy.diagnose().values["greedy_actions"] == 2


@pytest.mark.parametrize("further", [{}, {"self_prediction": {"steps": 2}}, {"ensemble": 2}, {"cql_alpha": 1.0}])
def test_soft_values_which_contain_entropy_are_not_compared_with_returns(further: dict[str, Any]) -> None:
    policy_kwargs = {"net_arch": [8, 8]}
    settings: dict[str, Any] = {**SANE, "policy_kwargs": policy_kwargs, **further}
    plain, soft = (DQN("MlpPolicy", CARTPOLE, munchausen=on, **settings).learn(300) for on in (False, True))
    assert "overestimation" in plain.diagnose().values
    assert "overestimation" not in soft.diagnose().values


def test_a_sample_without_a_reward_is_named_once_there_were_updates_enough() -> None:
    model: Any = DQN("MlpPolicy", CARTPOLE, **SANE).learn(400)
    model.counters.n_updates = 10_000
    assert model.diagnose().values["rewarded_steps"] > 100
    model.replay.ring.reward.zero_()
    diagnosis = model.diagnose()
    assert diagnosis.values["rewarded_steps"] == 0
    assert "overestimation" not in diagnosis.values, "values of 0.1 are not too large because no return differs from 0"
    assert "rewarded_steps" in {finding.name for finding in diagnosis.findings}
    model.counters.n_updates = 9_999
    assert "rewarded_steps" not in model.diagnose().values


def test_a_changed_greedy_action_is_no_churn_where_all_actions_have_almost_the_same_value() -> None:
    model: Any = DQN("MlpPolicy", CARTPOLE, **SANE | {"learning_rate": 0.02}).learn(400)
    assert model.diagnose().values["policy_churn"] > 0.0
    with torch.no_grad():
        model.policy.q_net.head.outputs.of_actions.bias += 1e3  # 1 % of it is more than any gap
        model.learner.refresh()
    assert model.diagnose().values["policy_churn"] == 0.0


def test_a_state_in_which_the_agent_stays_counts_once_for_the_churn(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = PPO("MlpPolicy", CARTPOLE, n_steps=256).learn(256)
    obs = torch.arange(256.0)[:, None].expand(-1, 4).clamp(min=199.0)  # 200 rows of one state, 56 of others
    sample = Sample({"obs": obs}, None, np.ones(256, np.float32), np.ones(256, np.float32))
    monkeypatch.setattr(diagnosis_of_model, "newest_rows", lambda *of_ring: sample)
    monkeypatch.setattr(diagnosis_of_model, "changed_actions", lambda *of_states: torch.arange(256) < 200)
    assert model.diagnose().values["policy_churn"] == pytest.approx(1 / 57)  # by row it would be 200 / 256


@SLOW
def test_values_that_have_not_yet_come_down_to_negative_returns_are_no_overestimation() -> None:
    model: Any = DQN("MlpPolicy", "Acrobot-v1", **SANE).learn(600)  # the goal is not reached: returns of -95 to -99
    assert model.diagnose().values["overestimation"] < 0.1
    model.counters.n_updates = 10_000
    assert model.diagnose().values["overestimation"] > 0.5


@pytest.mark.parametrize("scale", [0.0, 1e-4])
def test_observations_that_hardly_differ_are_named_alone(scale: float) -> None:
    env = gymnasium.make(CARTPOLE)
    scaled = gymnasium.wrappers.TransformObservation(env, lambda obs: obs * np.float32(scale), env.observation_space)
    model = DQN("MlpPolicy", scaled, **SANE).learn(200)
    earlier = model.diagnose()
    names = [finding.name for finding in model.learn(100, reset_num_timesteps=False).diagnose(since=earlier).findings]
    assert names == ["observation_spread"], "weights of inputs that are 0 are not frozen"
    assert "observation_spread" not in model.diagnose(env=scaled, episodes=2).values, "an agent may stay in one place"


@pytest.mark.parametrize(("factor", "names"), [(0.0, []), (1e6, ["reward_scale"])])
def test_a_critic_and_an_optimizer_are_not_blamed_for_rewards(factor: float, names: list[str]) -> None:
    env = gymnasium.wrappers.TransformReward(gymnasium.make(CARTPOLE), lambda reward: float(reward) * factor)
    diagnosis = PPO("MlpPolicy", env, n_steps=512, learning_rate=1e-3, **ACTOR).learn(2_048).diagnose()
    assert [finding.name for finding in diagnosis.findings][:1] == names, "adam_epsilon, if at all, comes after it"
    assert ("explained_variance" in diagnosis.values) == (factor > 0), "returns without rewards are the critic's own"


@SLOW
def test_the_network_that_learns_is_measured_where_the_target_network_acts() -> None:
    model: Any = DQN("MlpPolicy", CARTPOLE, act_with="target", **SANE).learn(400)
    file = io.BytesIO()
    layer = model.policy.q_net.torso.linears[0]
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(-1.0)
    model.save(file)
    file.seek(0)
    found = DQN.load(file).diagnose(env=CARTPOLE, episodes=2)
    assert found.values["dormant_units"] == 1.0, "the target network has no such layer"
    assert found.values["effective_rank"] <= 1


class Masked(gymnasium.Env[Any, Any]):
    """Two of six actions are legal."""

    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(6)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(3, np.float32), {"action_mask": np.arange(6) < 2}

    def step(self, action: Any) -> Any:
        assert action < 2
        self.t += 1
        return np.zeros(3, np.float32), -0.1, False, self.t >= 50, {"action_mask": np.arange(6) < 2}


def test_greedy_episodes_are_measured_with_their_masks() -> None:
    model = DQN("MlpPolicy", Masked(), action_mask="info", buffer_size=500, learning_starts=1_000, seed=0).learn(60)
    with torch.no_grad():
        model.policy.q_net.head.outputs.of_actions.bias[2:] = 100.0
    played = model.diagnose(env=Masked())
    assert (played.values["legal_actions"], played.values["never_legal"]) == (2.0, 4.0)
    assert played.values["overestimation"] < 1.0
