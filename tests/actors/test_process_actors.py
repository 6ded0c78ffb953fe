"""Process actors: the rows they store, equality with the learner's own steps, resume, replay ratio and faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from sb_dqn import DQN, PPO, R2D2, SAC, NoisyDQN
from sb_dqn.actors import OverlappedActors, ProcessActors
from sb_dqn.actors.worker import Weights
from sb_dqn.callbacks import BaseCallback
from sb_dqn.envs import make_atari_env
from sb_dqn.errors import CheckpointError, ConfigurationError, EnvironmentFault
from tests.actors.games import Ledger, Masked, check_rows
from tests.continuing import Kept, differences
from tests.invariants import check_valid
from tests.marks import FULL, SLOW, a_few
from tests.tiny import SMALL_CNN, Tiny

SMALL: dict[str, Any] = {
    "learning_starts": 20, "batch_size": 8, "buffer_size": 2_000, "seed": 5, "policy_kwargs": {"net_arch": [8]}, "device": "cpu",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("eagerly")


def learned(actors: Any, env: Any = Ledger, steps: int = 300, callback: Any = None, **kwargs: Any) -> Any:
    return DQN("MlpPolicy", env, actors=actors, **{**SMALL, **kwargs}).learn(steps, callback)


class SaveAt(BaseCallback):
    """Writes a full checkpoint at some env steps."""

    def __init__(self, folder: Path, steps: tuple[int, ...]) -> None:
        super().__init__()
        self.folder, self.steps = folder, steps

    def _on_step(self) -> bool:
        if self.num_timesteps in self.steps:
            self.model.save(str(self.folder / f"{self.num_timesteps}.zip"), full=True)
        return True


# -- the rows


@SLOW
@pytest.mark.parametrize("order", ["lane", "arrival"])
def test_every_stored_row_follows_the_one_before(order: Any) -> None:
    actors = ProcessActors(3, lanes=2, order=order, chunk=5, ahead=2)
    model = learned(actors, [partial(Ledger, pause=0.001 * lane) for lane in range(6)])
    count, cuts = check_rows(model.replay.ring)
    assert check_valid(model.replay.ring) == (True, "valid")
    assert count >= 300
    assert cuts == 0
    assert len(set(model.replay.ring.cursor.tolist())) > 1 or order == "lane"
    assert model.statistics.num_episodes > 20
    assert 0.0 < model.statistics.success_rate < 1.0  # from the infos
    model.close()
    assert not model.collector.workers.running
    model.learn(30, reset_num_timesteps=False)  # starts them again
    assert check_rows(model.replay.ring)[1] <= cuts + 6  # the open episodes of the lanes
    model.close()
    assert not model.collector.workers.running


def inline_twin(kind: Any, env: Any, lanes: int, **kwargs: Any) -> Any:
    """A model that steps its own environments, with the random numbers of the only actor."""
    whole = isinstance(env, partial) and env.func is make_atari_env
    model = kind(env=env() if whole else [env] * lanes, **kwargs)
    explore, _ = np.random.SeedSequence((model.seed, 0, 0, 0)).spawn(2)
    model.rng.explore.bit_generator.state = np.random.default_rng(explore).bit_generator.state
    return model


CASES: dict[str, tuple[Any, Any, int, dict[str, Any]]] = {
    "DQN": (DQN, Ledger, 2, {}),
    "priorities and n steps": (DQN, Ledger, 2, {"prioritized_replay": True, "n_steps": 3, "double_q": True}),
    "TD errors of the actor": (DQN, Ledger, 2, {"prioritized_replay": {"initial": "td_error"}, "n_steps": 2}),
    "ladder": (DQN, Ledger, 3, {"exploration": {"kind": "epsilon", "ladder": "apex"}, "exploration_final_eps": 0.4}),
    "normalized": (DQN, Ledger, 2, {"normalize_observations": True, "normalize_rewards": True}),
    "masked branches": (DQN, Masked, 2, {"action_mask": "info"}),
    "Dict": (DQN, partial(Tiny, "dict"), 2, {"policy": "MultiInputPolicy"}),
    "recurrent": (
        R2D2,
        Ledger,
        2,
        {
            "policy": "MlpLstmPolicy",
            "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 4},
            "batch_T": 4,
            "warmup_T": 4,
            "batch_B": 4,
            "store_rnn_state_interval": 4,
        },
    ),
    "SAC": (SAC, partial(gymnasium.make, "Pendulum-v1"), 2, {}),
    "Atari": (
        DQN,
        partial(make_atari_env, "ALE/Pong-v5", 2),
        2,
        {
            "policy": "CnnPolicy",
            "buffer_size": 400,
            "policy_kwargs": {"features_extractor_kwargs": {"features_dim": 16}},
        },
    ),
}


@SLOW
@pytest.mark.parametrize("case", a_few(CASES, "DQN", "priorities and n steps", "masked branches", "recurrent"))
def test_one_actor_in_step_with_the_learner_makes_the_same_run(case: str) -> None:
    """With chunks of one step and none ahead, an actor does what the learner would do itself, bit for bit."""
    kind, env, lanes, settings = CASES[case]
    kwargs = {"policy": "MlpPolicy", **SMALL, **settings}
    if kind is R2D2:
        del kwargs["batch_size"]
    model = kind(env=env, actors=ProcessActors(1, lanes=lanes, ahead=1, chunk=1), **kwargs).learn(100)
    twin = inline_twin(kind, env, lanes, **kwargs).learn(100)
    here_only = ("plain data", "rng", "frames", "memory")  # generators, stacks and states of the lanes are the actor's
    assert [name for name in differences(model, twin) if not name.startswith(here_only)] == []
    assert model.statistics.returns.tolist() == twin.statistics.returns.tolist()
    assert model._n_updates == twin._n_updates > 2
    model.close()


# -- resume and replay ratio


def test_resuming_is_bit_exact_at_any_tick(tmp_path: Path) -> None:
    actors = ProcessActors(2, lanes=2, chunk=4, ahead=2)
    kwargs = {"prioritized_replay": True, "normalize_observations": True}
    steps = (44, 57, 62, 64)
    whole = learned(actors, steps=200, callback=SaveAt(tmp_path, tuple(range(40, 100))), **kwargs)
    undisturbed = learned(actors, steps=200, **kwargs)
    assert differences(whole, undisturbed) == []
    files = sorted(tmp_path.glob("*.zip"), key=lambda path: int(path.stem))[:8:2]
    assert len(files) == len(steps)
    for file in files:
        resumed: Any = DQN.load(file, env=Ledger).resume()
        assert differences(whole, resumed) == []
        resumed.close()
    other: Any = DQN.load(files[0], env=Ledger, actors=ProcessActors(2, lanes=2, chunk=5))
    with pytest.raises(CheckpointError, match="processes, chunk, ahead, order"):
        other.resume()
    with pytest.raises(CheckpointError, match="actors must be of the kind"):
        DQN.load(files[0], env=[Ledger] * 4, actors=None).resume()
    for model in (whole, undisturbed, other):
        model.close()


def test_full_checkpoints_leave_the_frames_of_the_workers_alone(tmp_path: Path) -> None:
    """A pipe moves the memory of the tensors that it sends; the workers crashed at the next step."""
    kwargs = {**SMALL, "policy_kwargs": {"features_extractor_kwargs": SMALL_CNN}}
    env = [partial(Kept, "frames", "discrete", False)] * 4
    plain, saving = (DQN("CnnPolicy", env, actors="process:2x2", **kwargs) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain.learn(120)
        saving.learn(120, SaveAt(tmp_path, tuple(range(40, 80))))
    assert differences(plain, saving) == []
    resumed: Any = DQN.load(min(tmp_path.glob("*.zip"), key=lambda path: int(path.stem)), env=env).resume()
    assert differences(plain, resumed) == []
    for model in (plain, saving, resumed):
        model.close()


class Ratio(BaseCallback):
    """Notes the updates that were made by each tick."""

    def _on_training_start(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def _on_step(self) -> bool:
        self.seen.append((self.num_timesteps, self.locals["self"]._n_updates))
        return True


@SLOW
@pytest.mark.parametrize("order", ["lane", "arrival"])
def test_the_replay_ratio_is_exact_at_every_tick_whatever_the_timing(order: Any) -> None:
    envs = [partial(Ledger, pause=pause) for pause in (0.0, 0.004, 0.001)]
    ratio = Ratio()
    model = learned(ProcessActors(3, order=order, chunk=3), envs, 240, ratio, train_freq=5, gradient_steps=2)
    start = next(step for step, updates in ratio.seen if updates)
    made = [(step, updates - 2 * (step // 5 - start // 5 + 1)) for step, updates in ratio.seen if step >= start]
    assert all(late == 0 for _, late in made), made
    model.close()


# -- faults


@SLOW
@pytest.mark.parametrize("fault", ["killed", "raises", "hangs", "memory"])
def test_an_actor_that_ends_is_replaced_and_its_episode_is_cut(fault: str, tmp_path: Path) -> None:
    marker = str(tmp_path / "once")
    if fault == "memory":
        Path(marker).touch()  # the environment that the learner makes to read the spaces is no actor's
    broken = partial(Ledger, fault, 20, marker)
    model: Any = DQN(
        "MlpPolicy",
        [broken, Ledger, Ledger],
        actors=ProcessActors(3, chunk=4, step_timeout=2.0 if fault == "hangs" else 60.0),
        **SMALL,
    )
    if fault == "memory":
        os.unlink(marker)
    words = {
        "killed": "SIGKILL",
        "raises": "the door is locked",
        "hangs": "made no step",
        "memory": "MemoryError: no room",
    }
    with pytest.warns(UserWarning, match=f"the actor of lane 0 .*{words[fault]}"):
        model.learn(300)
    count, cuts = check_rows(model.replay.ring)
    assert count >= 290
    assert cuts <= 1
    assert model.collector.log_facts()["rollout/env_restarts"] == 1
    assert check_valid(model.replay.ring) == (True, "valid")
    model.close()


@SLOW
def test_an_actor_that_ends_again_and_again_ends_the_run_by_name() -> None:
    model: Any = DQN("MlpPolicy", [Ledger, partial(Ledger, "raises", 2)], actors=ProcessActors(2), **SMALL)
    with (
        pytest.warns(UserWarning, match="lane 1"),
        pytest.raises(EnvironmentFault, match="lane 1 .*the door is locked.* 5 times"),
    ):
        model.learn(300)
    assert not model.collector.workers.running
    model.set_env([Ledger, Ledger])
    model.learn(50)
    model.close()


class Returns(Ledger):
    """Returns one wrong thing at step 25 of its life."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.wrong = wrong

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, {**info, "action_mask": np.ones(3, np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        legal = np.ones(3, np.int8)
        if self.steps == 25:
            reward = np.nan if self.wrong == "reward" else reward
            observation = {"observation": observation * np.inf, "shape": observation[:1]}.get(self.wrong, observation)
            legal *= 2 if self.wrong == "mask" else 1
        return observation, reward, terminated, truncated, {**info, "action_mask": legal}


WRONG = {
    "reward": "the reward in lane 3 at step 2.* must be finite, got NaN or infinity",
    "observation": "observation 'obs' in lane 3 at step 2.* must be finite, got NaN or infinity",
    "shape": "observation 'obs' in lane 3 at step 2.* must have shape",
    "mask": "the action mask of lane 3 at step 2.* must hold only 0 and 1",
}


@SLOW
@pytest.mark.parametrize("wrong", a_few(WRONG, "reward", "mask"))
@pytest.mark.parametrize(
    "actors", [ProcessActors(2, lanes=2), OverlappedActors(2, lanes=2)], ids=["processes", "groups"]
)
def test_a_wrong_value_of_an_environment_ends_the_run_with_its_lane(actors: Any, wrong: str) -> None:
    """No actor is replaced, which makes a warning, an error here: the next one would return the same."""
    envs = [Returns, Returns, Returns, partial(Returns, wrong)]
    model: Any = DQN("MlpPolicy", envs, actors=actors, action_mask="info", **SMALL)
    with pytest.raises(EnvironmentFault, match=WRONG[wrong]):
        model.learn(400)
    assert model.num_timesteps > 40
    assert all(torch.isfinite(column).all() for column in (model.replay.ring.reward, *model.replay.ring.obs.values()))
    model.set_env([Returns] * 4)
    model.learn(50)
    model.close()


SCRIPT = """
import multiprocessing, signal, sys
from sb_dqn import DQN
from tests.actors.games import Ledger

signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background of a shell

class OfTheScript(Ledger):
    pass

model = DQN("MlpPolicy", OfTheScript, actors="process:2", learning_starts=20, batch_size=8, policy_kwargs=dict(net_arch=[8]))
pids = []
def tell(locals, globals):
    if not pids and model.num_timesteps >= 100:
        pids.extend(process.pid for process in model.collector.workers._processes.values())
        print(*pids, flush=True)
    return True
try:
    model.learn(10**9, tell)
except KeyboardInterrupt:
    model.save(sys.argv[1])
    print("saved", flush=True)
    model.learn(50)
    print("learned", flush=True)
"""


@SLOW
@pytest.mark.parametrize("end", a_few(["SIGKILL", "SIGINT"], "SIGKILL"))
def test_no_process_outlives_the_learner(end: str, tmp_path: Path) -> None:
    """A script without a main guard, with an environment of its own."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "model.zip")], stdout=subprocess.PIPE, text=True, cwd=Path.cwd(),
        env={**os.environ, "PYTHONPATH": str(Path.cwd())}, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            pids = [int(pid) for pid in process.stdout.readline().split()]
            assert len(pids) == 2
            if end == "SIGKILL":
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: to all processes of the terminal
                assert process.stdout.read().split() == ["saved", "learned"]
            process.wait(30)
        finally:
            process.kill()
    until = time.monotonic() + 15
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_are_read_into_the_tensors_of_the_networks(dtype: torch.dtype) -> None:
    net: Any = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).to(dtype).eval()
    normalizer: Any = SimpleNamespace(acting_tensors=lambda: [torch.ones(2)])
    weights, x = Weights(net, normalizer), torch.ones(5, 3, dtype=dtype)
    expected = net(x)
    weights.move_to_one_array()
    torch.testing.assert_close(net(x), expected)
    new = np.arange(weights.size).astype(np.float32)
    weights.read(new)
    assert net[0].weight.flatten().tolist() == pytest.approx(new[:12].tolist())
    assert net[1].running_mean.tolist() == pytest.approx(new[24:28].tolist())
    copy = np.zeros(weights.size, np.float32)
    weights.write(copy)
    assert (copy == new).all()


MEMORY = """
from pathlib import Path
from sb_dqn import DQN
from tests.actors.games import Ledger

model = DQN("MlpPolicy", Ledger, actors="process:2", learning_starts=20, exploration_fraction=0.01, device="cpu").learn(300)
for process in model.collector.workers._processes.values():
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    print(sum(int(line.split()[1]) for line in lines if line.startswith("Private")) // 1024)
"""


@FULL
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no file that tells private memory")
def test_processes_share_the_memory_of_torch() -> None:
    """Also after their first greedy action, for which the network is traced; it was 134 MiB for each."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    private = [int(line) for line in done.stdout.split()]
    assert len(private) == 2
    assert max(private) < 70


# -- arguments


def test_wrong_arguments_are_answered_with_the_fix() -> None:
    with pytest.raises(ConfigurationError, match="processes must be an integer >= 1, got 0"):
        ProcessActors(0)
    with pytest.raises(ConfigurationError, match=r"processes \* lanes = 6 entries, got 4"):
        DQN("MlpPolicy", [Ledger] * 4, actors=ProcessActors(3, lanes=2))
    with pytest.raises(ConfigurationError, match="each process makes its own, got Ledger"):
        DQN("MlpPolicy", Ledger(), actors=ProcessActors(2))
    with pytest.raises(ConfigurationError, match="env must be picklable with process actors.*makes an environment"):
        lock = __import__("threading").Lock()
        DQN("MlpPolicy", lambda: (lock, Ledger())[1], actors=ProcessActors(2))
    with pytest.raises(ConfigurationError, match="must have lanes=3 environments, got 2"):
        DQN("CnnPolicy", partial(make_atari_env, "ALE/Pong-v5", 2), actors=ProcessActors(2, lanes=3), buffer_size=100)
    with pytest.raises(ConfigurationError, match="actors must be None, 'overlapped', OverlappedActors.*got 'threads'"):
        DQN("MlpPolicy", "CartPole-v1", actors="threads")
    with pytest.raises(ConfigurationError, match="actors must be unset for PPO.*on-policy"):
        PPO("MlpPolicy", "CartPole-v1", actors=ProcessActors(2))  # type: ignore[call-arg]


def test_model_files_hold_the_settings(tmp_path: Path) -> None:
    model: Any = NoisyDQN("MlpPolicy", Ledger, actors=ProcessActors(2, lanes=3, order="arrival"), **SMALL)
    model.save(tmp_path / "model")
    loaded: Any = NoisyDQN.load(tmp_path / "model", env=Ledger)
    assert loaded.actors == ProcessActors(2, lanes=3, order="arrival")
    assert loaded.n_envs == 6
    assert NoisyDQN.load(tmp_path / "model").predict(np.zeros(2, np.float32))[0] in (0, 1, 2)  # needs no processes
    short: Any = DQN("MlpPolicy", Ledger, actors={"processes": 2, "chunk": 3}, **SMALL)
    assert short.collector.workers.layout.ticks == 3
