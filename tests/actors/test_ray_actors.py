"""Ray actors: settings, packed chunks, a cluster of this machine, and what happens when an actor ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sb_dqn import DQN
from sb_dqn.actors import ProcessActors, RayActors, as_actors, ray_actors
from sb_dqn.actors.chunks import PackedImages, pack_chunk, unpack_chunk
from sb_dqn.actors.processes import StateAnswer
from sb_dqn.actors.worker import ChunkRequest, Seeds
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from tests.actors.games import Ledger, check_rows
from tests.actors.test_process_ends import Simulated, is_running, numbers, run_script, wait_for
from tests.invariants import check_valid
from tests.marks import FULL
from tests.sockets import LOOPBACK, descendants, listening

KILL_EVERY = float(os.environ.get("SB_DQN_KILL_EVERY", "2"))
KILL_SECONDS = float(os.environ.get("SB_DQN_KILL_SECONDS", "5"))
"""Two minutes with a death per second: SB_DQN_KILL_EVERY=1 SB_DQN_KILL_SECONDS=120."""
SMALL: dict[str, Any] = {
    "learning_starts": 20, "batch_size": 8, "buffer_size": 20_000, "seed": 5, "policy_kwargs": {"net_arch": [8]}, "device": "cpu",
}  # fmt: skip


@pytest.mark.parametrize(
    ("short", "settings"),
    [
        ("ray:16", RayActors(16)),
        ("ray:16x2@auto", RayActors(16, 2, address="auto")),
        ("ray:3@10.0.0.7:6379", RayActors(3, address="10.0.0.7:6379")),
        ({"processes": 2, "address": "auto", "chunk": 8}, RayActors(2, address="auto", chunk=8)),
        ("process:4", ProcessActors(4)),
    ],
)
def test_short_forms(short: Any, settings: Any) -> None:
    assert as_actors(short) == settings
    assert type(as_actors(short)) is type(settings)


def actors_of(path: Path, **keywords: Any) -> Any:
    """The setting `actors` of a model that is loaded."""
    model: Any = DQN.load(path, **keywords)
    return model.actors


def test_a_file_does_not_choose_the_cluster(tmp_path: Path) -> None:
    """A model file may come from anyone; whoever holds the cluster at its address could run code in the learner."""
    there = RayActors(2, lanes=3, address="10.0.0.7:6379")
    DQN("MlpPolicy", "CartPole-v1", actors=there, **SMALL).save(tmp_path / "model")
    message = (
        r"on the Ray cluster at '10.0.0.7:6379': the model does not connect to it.*pass load\(path, actors=RayActors\(2, lanes=3, "
        r"address='10.0.0.7:6379'\)\)"
    )
    with pytest.warns(UserWarning, match=message):
        assert actors_of(tmp_path / "model", env="CartPole-v1") == RayActors(2, lanes=3)
    assert actors_of(tmp_path / "model", actors=there) == there  # and without a warning
    assert actors_of(tmp_path / "model", actors=None) is None
    assert actors_of(tmp_path / "model", trust=True) == there
    DQN("MlpPolicy", "CartPole-v1", actors=RayActors(2, address="auto"), **SMALL).save(tmp_path / "here")
    assert actors_of(tmp_path / "here") == RayActors(2, address="auto")


@pytest.mark.parametrize("value", ["process:4@auto", "ray", "ray:x", {"address": "auto"}])
def test_wrong_short_forms(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="actors must"):
        as_actors(value)


@pytest.mark.parametrize("settings", [{"num_cpus": 0.0}, {"address": ""}, {"processes": 0}])
def test_wrong_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="Actors's .* must be"):
        RayActors(**{"processes": 2, **settings})


def test_images_are_packed_and_restored() -> None:
    rng = np.random.default_rng(0)
    images = np.repeat(rng.integers(0, 256, (1, 2, 1, 1, 84, 84), np.uint8), 50, axis=0)
    images[20:, ..., 3, 4] ^= 255
    valid = np.stack([np.arange(50) == 7, np.ones(50, np.bool_)], axis=1)[..., None]
    arrays = {"obs/camera": images, "obs/speed": rng.random((50, 2, 1, 3)), "action": np.arange(50), "valid": valid}
    packed = pack_chunk(arrays, compress=True)
    camera = packed["obs/camera"]
    assert isinstance(camera, PackedImages)
    assert len(camera.data) < 2 * 2 * 84 * 84  # noise does not shrink, but is sent once instead of 50 times
    for name, array in unpack_chunk(packed).items():
        np.testing.assert_array_equal(array, arrays[name])
    np.testing.assert_array_equal(pack_chunk(arrays, compress=False)["obs/camera"], images)
    valid[:, 0] = False
    np.testing.assert_array_equal(unpack_chunk(pack_chunk(arrays, compress=True))["obs/camera"], images[:, 1:])


def test_a_missing_ray_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    model = DQN("MlpPolicy", Ledger, actors=RayActors(2), **SMALL)
    with pytest.raises(ConfigurationError, match=r'pip install "sb_dqn\[ray\]"'):
        model.learn(10)


def test_an_address_where_nothing_listens_is_named() -> None:
    pytest.importorskip("ray")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(ConfigurationError, match=f"got '{address}', where nothing answers"):
            ray_actors.connect(address, 1)
        with pytest.raises(ConfigurationError, match="got 'nowhere', where nothing answers"):
            ray_actors.connect("nowhere", 1)
        assert time.monotonic() - started < 10


def test_a_ray_without_tokens_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__="2.40.0"))
    model = DQN("MlpPolicy", Ledger, actors=RayActors(2), **SMALL)
    with pytest.raises(ConfigurationError, match=r"ray must be 2.52 or newer.*got 2.40.0.*Run pip install -U"):
        model.learn(10)


class Forgets(Ledger):
    """Cannot return its state."""

    def state_dict(self) -> dict[str, Any]:
        raise ValueError("the book is closed")


def ray_worker(env: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the object of a Ray actor, in this process and without Ray."""
    ray = SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "here"))
    monkeypatch.setattr(ray_actors, "import_ray", lambda: ray)
    model: Any = DQN("MlpPolicy", env, actors=RayActors(1, lanes=2, chunk=5), **SMALL)
    workers = model.collector.workers
    worker = ray_actors.RayWorker(workers.configs[0], workers.layout, {}, "here")
    worker.collect(ChunkRequest(0, 0, 0, True, None, Seeds(1, (1,))), workers.weights[0])
    return worker


def test_errors_of_an_environment_during_a_checkpoint_are_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = ray_worker(Forgets, monkeypatch)
    assert "ValueError: the book is closed" in worker.state(False).cause
    marker = tmp_path / "made"
    marker.touch()
    worker = ray_worker(partial(Ledger, "memory", marker=str(marker)), monkeypatch)
    assert worker.state(False).state is not None
    marker.unlink()
    worker.renew()
    for answer in (worker.state(False), worker.load_state({}, False)):
        assert "MemoryError: no room for another environment" in answer.cause
    worker.renew()
    assert isinstance(worker.state(False), StateAnswer)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of this machine, shared by the tests, whose token is in a folder of its own."""
    ray: Any = pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("RAY_AUTH_MODE", "disabled")  # what a local cluster does not follow
        ray_actors.connect(None, 4)
        yield ray
        ray.shutdown()


def actor_processes() -> list[int]:
    """Returns the process ids of the Ray actors on this machine."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                found += [int(name)] if "ray::RayWorker" in file.read() else []
        except OSError:
            pass
    return found


@FULL
@pytest.mark.filterwarnings("ignore:the actor of lane.* ended with its process")
def test_killed_actors_are_replaced_and_no_row_is_mixed(cluster: Any) -> None:
    actors = RayActors(3, lanes=2, chunk=5)
    model: Any = DQN("MlpPolicy", partial(Ledger, pause=0.002), actors=actors, train_freq=4, **SMALL)
    model.learn(200)
    ends, rng = time.monotonic() + KILL_SECONDS, np.random.default_rng(0)

    def kill() -> None:
        while time.monotonic() < ends:
            time.sleep(KILL_EVERY)
            for process in rng.permutation(actor_processes())[:1]:
                os.kill(process, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    model.learn(10_000_000, lambda *_: time.monotonic() < ends, reset_num_timesteps=False)
    killer.join()
    model.learn(2_000, reset_num_timesteps=False)  # by new actors
    count, _ = check_rows(model.replay.ring)
    assert count >= model.num_timesteps
    assert check_valid(model.replay.ring) == (True, "valid")
    assert model.collector.restarts > 0
    assert abs(model._n_updates - (model.num_timesteps - 20) / 4) <= 10  # lanes are read together
    model.collector.close()


@FULL
def test_other_versions_are_named(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_actors, "versions", lambda: {"torch": "1.0", "sb_dqn": "0.0.1"})
    model = DQN("MlpPolicy", Ledger, actors=RayActors(1), **SMALL)
    with pytest.raises(
        ConfigurationError, match=r"versions of the learner, got an actor that has torch .* instead of 1.0"
    ):
        model.learn(10)


@FULL
@pytest.mark.filterwarnings("ignore:the actor of lane 0 raised")
def test_an_environment_that_always_fails_ends_the_run(cluster: Any) -> None:
    model = DQN("MlpPolicy", partial(Ledger, "raises", at=3), actors=RayActors(1, chunk=5), **SMALL)
    with pytest.raises(EnvironmentFault, match=r"ValueError: the door is locked.*5 times without finishing a chunk"):
        model.learn(100)


@FULL
def test_a_local_cluster_listens_on_the_loopback_interface_only(cluster: Any) -> None:
    model: Any = DQN("MlpPolicy", Ledger, actors=RayActors(2), **SMALL).learn(100)
    addresses = listening(descendants(os.getpid()))
    assert len(addresses) >= 5
    assert set(addresses) <= LOOPBACK
    model.close()


STRANGER = """
import sys
import ray

ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
print(ray.get(ray.remote(lambda: "ran").remote()), flush=True)
"""


def runs_a_task(address: str, home: Path, **variables: str) -> bool:
    """Returns whether another process runs a task in a cluster."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    others["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # or Ray would not try 127.0.0.1, where the cluster listens
    process = subprocess.Popen(
        [sys.executable, "-c", STRANGER, address], env={**others, "HOME": str(home), **variables}, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        return "ran" in process.communicate(timeout=100)[0]
    except subprocess.TimeoutExpired:
        return False
    finally:
        process.kill()
        process.communicate()


@FULL
def test_only_processes_with_the_token_run_code_in_a_local_cluster(cluster: Any, tmp_path: Path) -> None:
    assert (Path.home() / ".ray" / "auth_token").stat().st_mode & 0o777 == 0o600
    address = cluster.get_runtime_context().gcs_address
    assert runs_a_task(address, Path.home(), RAY_AUTH_MODE="token")
    assert not runs_a_task(address, tmp_path)
    assert not runs_a_task(address, tmp_path, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="1" * 64)


@FULL
def test_closing_a_model_closes_the_environments_of_ray_actors(cluster: Any, tmp_path: Path) -> None:
    model: Any = DQN("MlpPolicy", partial(Simulated, tmp_path), actors=RayActors(2, chunk=5), **SMALL).learn(60)
    model.close()
    programs = numbers(tmp_path, "program")
    assert len(programs) == 3
    assert numbers(tmp_path, "closed") == programs
    assert wait_for(lambda: not any(is_running(program) for program in programs), 10)


class Breaks(Ledger):
    """Returns NaN as a reward at step 25 of its life."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, np.nan if self.steps == 25 else reward, terminated, truncated, info


@FULL
def test_a_wrong_value_ends_the_run_with_its_lane(cluster: Any) -> None:
    model = DQN("MlpPolicy", [Ledger, Ledger, Ledger, Breaks], actors=RayActors(2, lanes=2, chunk=5), **SMALL)
    with pytest.raises(EnvironmentFault, match="the reward in lane 3 at step 2.* must be finite"):
        model.learn(1_000)


LOST = """
import os, sys
from pathlib import Path
from sb_dqn import DQN
from sb_dqn.actors import RayActors
from sb_dqn.errors import EnvironmentFault
from tests.actors.games import Ledger
from tests.actors.test_ray_actors import SMALL
from tests.sockets import descendants

model = DQN("MlpPolicy", Ledger, actors=RayActors(2, chunk=5), **SMALL).learn(100)
if os.fork() == 0:
    sys.exit()
os.wait()
model.learn(100)
print(model.collector.restarts, flush=True)

def kill(*_):
    if model.num_timesteps > 100:
        heads = [process for process in descendants(os.getpid()) if "gcs_server" in Path(f"/proc/{process}/cmdline").read_text()]
        for process in heads:
            os.kill(process, 9)

try:
    model.learn(10**9, kill)
except EnvironmentFault as error:
    print(error, flush=True)
model.save(sys.argv[1], full=True)
model.learn(100)
print("learned", flush=True)
"""


@FULL
def test_a_learner_outlives_a_fork_of_its_own_and_the_head_of_its_cluster(tmp_path: Path) -> None:
    """Ray would end the process after a minute, without an error and a file."""
    pytest.importorskip("ray")
    with run_script(tmp_path, LOST, str(tmp_path / "model.zip")) as process:
        try:
            out, errors = process.communicate(timeout=280)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    restarts, lost, learned = out.splitlines()
    assert restarts == "0"
    assert "the head of the Ray cluster must answer, got no answer at 127.0.0.1:" in lost
    assert learned == "learned"
    model: Any = DQN.load(tmp_path / "model.zip", env=Ledger, actors=RayActors(2, chunk=5))
    assert model.num_timesteps > 100
