"""How process actors start and end: scripts with threads, environments with programs of their own, forks, pools."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sb_dqn import DQN
from sb_dqn.actors import ProcessActors
from sb_dqn.actors.processes import CLOSE_SECONDS, without_main_module
from sb_dqn.errors import ConfigurationError
from tests.actors.games import Ledger
from tests.marks import FULL, SLOW, a_few

SMALL: dict[str, Any] = {
    "learning_starts": 20, "batch_size": 8, "buffer_size": 2_000, "seed": 5, "policy_kwargs": {"net_arch": [8]}, "device": "cpu",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("eagerly")


class Simulated(Ledger):
    """Starts a program when it is made, and notes in files what became of it.

    Args:
        folder: of the files `program-PID` with the program's id, and `closed-PID` after `close`.
        closes: how `close` ends in another process than that of `learner`: "well", "never", "raises".
        learner: process that makes an environment to read its spaces.
    """

    def __init__(self, folder: Path, closes: str = "well", learner: int = 0) -> None:
        super().__init__()
        self.folder, self.closes = folder, "well" if os.getpid() == learner else closes
        self.program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        (folder / f"program-{self.program.pid}").touch()

    def close(self) -> None:
        if self.closes == "never":
            time.sleep(1000)
        (self.folder / f"closed-{self.program.pid}").touch()
        if self.closes == "raises":
            raise ValueError("the program does not answer")
        self.program.terminate()
        self.program.wait()


def numbers(folder: Path, kind: str) -> set[int]:
    return {int(path.name.partition("-")[2]) for path in folder.glob(f"{kind}-*")}


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run_script(folder: Path, text: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a script without a main guard."""
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(path), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip


THREADS = """
import threading
from sb_dqn import DQN

print("the script runs", flush=True)

together = threading.Barrier(3)

def learn():
    model = DQN("MlpPolicy", "CartPole-v1", actors="process:4", learning_starts=50, policy_kwargs=dict(net_arch=[8]), device="cpu")
    together.wait()
    model.learn(50)
    model.close()

threads = [threading.Thread(target=learn) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_one_thread_at_a_time_hides_the_main_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", "script.py", raising=False
    )  # which a worker of pytest-xdist has not
    main, seen = sys.modules["__main__"], []
    entered, left = threading.Event(), threading.Event()

    def second() -> None:
        with without_main_module():
            entered.set()
            left.wait(10)
            seen.append(hasattr(main, "__file__"))

    before, thread = main.__file__, threading.Thread(target=second)
    with without_main_module():
        thread.start()
        entered.wait(0.2)
    left.set()
    thread.join()
    assert seen == [False]
    assert main.__file__ == before


@FULL
def test_threads_that_start_actors_do_not_run_the_script_again(tmp_path: Path) -> None:
    with run_script(tmp_path, THREADS) as process:
        out, errors = process.communicate(timeout=120)
    assert out.split("\n") == ["the script runs", ""]
    assert process.returncode == 0
    assert "Error" not in errors


@SLOW
@pytest.mark.parametrize("closes", a_few(["well", "never", "raises"], "well", "raises"))
def test_closing_a_model_closes_its_environments_and_ends_their_programs(closes: str, tmp_path: Path) -> None:
    env = partial(Simulated, tmp_path, closes, os.getpid())
    model: Any = DQN("MlpPolicy", env, actors=ProcessActors(2, lanes=2), **SMALL)
    model.learn(30)
    processes = dict(model.collector.workers._processes)
    started = time.monotonic()
    model.close()
    assert time.monotonic() - started < CLOSE_SECONDS + 5
    programs, closed = numbers(tmp_path, "program"), numbers(tmp_path, "closed")
    assert len(programs) == 2 + 4  # two by the learner, to read the spaces
    assert closed == programs or closes == "never"
    assert wait_for(lambda: not any(is_running(program) for program in programs), 5)
    assert all(process.exitcode == (-signal.SIGKILL if closes == "never" else 0) for process in processes.values())


SIMULATED = """
import os, sys
from functools import partial
from pathlib import Path
from sb_dqn import DQN
from tests.actors.test_process_ends import Simulated

env = partial(Simulated, Path(sys.argv[1]))
model = DQN("MlpPolicy", env, actors="process:2", learning_starts=50, policy_kwargs=dict(net_arch=[8]), device="cpu")
model.learn(50)
if os.fork() == 0:
    sys.exit()
os.wait()
model.learn(50)
print(model.collector.restarts, flush=True)
if sys.argv[2] == "killed":
    model.learn(10**9, lambda *_: True)
if sys.argv[2] == "raises":
    raise ValueError("the script ends")
"""


@SLOW
@pytest.mark.parametrize("end", a_few(["killed", "raises", "exit"], "killed"))
def test_environments_are_closed_however_the_learner_ends(end: str, tmp_path: Path) -> None:
    """But not when a fork of the learner ends."""
    with run_script(tmp_path, SIMULATED, str(tmp_path), end) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
            if end != "killed":
                process.wait(60)
        finally:
            process.kill()
        errors = process.communicate()[1]
    assert process.returncode == {"killed": -signal.SIGKILL, "raises": 1}.get(end, 0), errors
    programs = numbers(tmp_path, "program")
    assert len(programs) == 3
    assert wait_for(lambda: numbers(tmp_path, "closed") == programs, 2 * CLOSE_SECONDS), errors
    assert wait_for(lambda: not any(is_running(program) for program in programs), 10)


@SLOW
def test_a_process_that_is_killed_takes_its_programs_along(tmp_path: Path) -> None:
    model: Any = DQN("MlpPolicy", partial(Simulated, tmp_path), actors=ProcessActors(1), **SMALL).learn(30)
    (before,) = numbers(tmp_path, "program") - numbers(tmp_path, "closed")
    os.kill(model.collector.workers._processes[0].pid, signal.SIGKILL)
    with pytest.warns(UserWarning, match="the actor of lane 0 was killed by SIGKILL"):
        model.learn(60)
    assert wait_for(lambda: not is_running(before), 10)
    (program,) = numbers(tmp_path, "program") - numbers(tmp_path, "closed") - {before}
    os.kill(model.collector.workers._processes[0].pid, signal.SIGTERM)  # as a scheduler does, to all processes
    model.learn(60)
    assert is_running(program)
    model.close()


def learned_steps(actors: Any) -> int:
    """Learns in this process."""
    model: Any = DQN("MlpPolicy", Ledger, actors=actors, **SMALL).learn(40)
    model.close()
    steps: int = model.num_timesteps
    return steps


def test_a_daemonic_process_is_refused() -> None:
    message = "must be started by a process that may have children, got a daemonic one.*Use concurrent.futures.ProcessPoolExecutor"
    with multiprocessing.get_context("fork").Pool(1) as pool, pytest.raises(ConfigurationError, match=message):
        pool.apply(learned_steps, ("process:2",))


@FULL
def test_a_pool_of_processes_that_may_have_children_works() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as executor:
        assert executor.submit(learned_steps, "process:2").result() >= 40


def test_a_model_that_is_learning_is_not_closed_by_another_thread() -> None:
    model: Any = DQN("MlpPolicy", Ledger, actors=ProcessActors(2), **SMALL)
    goes_on = threading.Event()
    thread = threading.Thread(target=model.learn, args=(10**9, lambda *_: not goes_on.is_set()))
    thread.start()
    assert wait_for(lambda: model.num_timesteps > 50, 60)
    with pytest.raises(ConfigurationError, match="close must not be called while the model is learning"):
        model.close()
    steps = model.num_timesteps
    assert wait_for(lambda: model.num_timesteps > steps + 50, 60)
    goes_on.set()
    thread.join(60)
    model.close()
    assert not model.collector.workers.running
