"""`from_pretrained`: trained models from folders, and from a server that speaks for the Hugging Face hub."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb_dqn import DQN, PPO, QRDQN, DoubleDQN
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.hub import pull_from_hub, push_to_hub
from sb_dqn.runs.folder import FinalEvaluation, Result, write_config, write_result
from tests.hub.hub_server import serve
from tests.hub.test_hub import use_hub

OBSERVATIONS = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
REPO = "user/agents"


def make_run(
    folder: Path, cls: type[Any] = DQN, seed: int = 0, returns: tuple[float, ...] = (10.0,), env_id: str = "CartPole-v1"
) -> Path:
    """Writes the folder of a run with a small model."""
    folder.mkdir(parents=True)
    model = cls("MlpPolicy", env_id, buffer_size=50, policy_kwargs={"net_arch": [4]}, seed=seed, device="cpu")
    model.save(folder / "model.zip")
    write_config(folder, {"algorithm": cls.__name__, "env_id": env_id, "n_envs": 1, "env_kwargs": {}, "n_timesteps": 40,
                          "settings": {"seed": seed}})  # fmt: skip
    if returns:
        write_result(folder, Result(40, 1.5, returns, FinalEvaluation(len(returns), 24, 0.1)))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder in the form of a benchmark's: several seeds, algorithms and environments, one run unfinished."""
    folder = tmp_path_factory.mktemp("benchmark")
    for seed, returns in ((100, (10.0, 12.0)), (101, (50.0, 40.0)), (102, ()), (103, (float("nan"),))):
        make_run(folder / f"runs/DQN_CartPole-v1_{seed}/dqn_CartPole-v1_1", seed=seed, returns=returns)
    make_run(folder / "runs/QRDQN_CartPole-v1_100/qrdqn_CartPole-v1_1", QRDQN, returns=(99.0,))
    make_run(folder / "runs/DQN_Acrobot-v1_100/dqn_Acrobot-v1_1", seed=7, returns=(-70.0,), env_id="Acrobot-v1")
    killed = folder / "runs/DQN_CartPole-v1_104/dqn_CartPole-v1_1"
    killed.mkdir(parents=True)
    write_config(killed, {"algorithm": "DQN", "env_id": "CartPole-v1"})
    (folder / "results.csv").write_text("library,algorithm\n")
    return folder


def seed_of(model: Any) -> Any:
    return model.arguments["seed"]


def test_run_pushed_and_pulled_folder_load_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run(Path("runs/dqn_CartPole-v1_1"), seed=3)
    make_run(Path("other"), seed=4).joinpath("model.zip").rename(run / "best_model.zip")
    push_to_hub(run, "./shared/cart", video=False)
    pulled = pull_from_hub("./shared/cart", "runs/theirs").folder
    expected = DQN.load(run / "model.zip", device="cpu").predict(OBSERVATIONS, deterministic=True)[0]
    for source in (str(run), run, "shared/cart", "./shared/cart", pulled):
        model = DQN.from_pretrained(source, device="cpu")
        np.testing.assert_array_equal(model.predict(OBSERVATIONS, deterministic=True)[0], expected)
    assert seed_of(DQN.from_pretrained(run, "CartPole-v1", filename="best_model.zip")) == 4


def test_environment_device_and_arguments_are_those_of_load(runs: Path) -> None:
    model = DQN.from_pretrained(runs, "CartPole-v1", env="CartPole-v1", device="cpu", gamma=0.5)
    assert (model.gamma, model.n_envs, model.device.type) == (0.5, 1, "cpu")
    model.learn(20)


def test_best_seed_of_the_class_on_the_environment_is_loaded(runs: Path) -> None:
    assert seed_of(DQN.from_pretrained(runs, "CartPole-v1")) == 101
    assert seed_of(DQN.from_pretrained(runs, env_id="Acrobot-v1")) == 7
    assert type(QRDQN.from_pretrained(runs)) is QRDQN  # on one environment only, so it need not be named


@pytest.mark.parametrize(
    ("cls", "env_id", "parts"),
    [
        (DQN, None, "must have DQN on one environment, got DQN on Acrobot-v1, DQN on CartPole-v1. Name one"),
        (
            QRDQN,
            "Acrobot-v1",
            "must have QRDQN on Acrobot-v1, got DQN on Acrobot-v1. Call from_pretrained of its class",
        ),
        (DoubleDQN, "Pong", "got DQN on Acrobot-v1, DQN on CartPole-v1, QRDQN on CartPole-v1. Call"),
    ],
)
def test_what_a_folder_does_not_have_is_refused_with_what_it_has(
    runs: Path, cls: type[Any], env_id: str | None, parts: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        cls.from_pretrained(runs, env_id)
    assert parts in str(raised.value)


def test_model_of_another_class_or_environment_is_refused(runs: Path, tmp_path: Path) -> None:
    run = runs / "runs/QRDQN_CartPole-v1_100/qrdqn_CartPole-v1_1"
    with pytest.raises(CheckpointError, match=r"must hold a PPO, got a QRDQN. Load it with QRDQN.load"):
        PPO.from_pretrained(run)
    assert type(DQN.from_pretrained(run)) is QRDQN  # a subclass, as by load
    with pytest.raises(ConfigurationError, match="must have QRDQN on Acrobot-v1, got QRDQN on CartPole-v1"):
        QRDQN.from_pretrained(run, "Acrobot-v1")
    (tmp_path / "model.zip").write_bytes((run / "model.zip").read_bytes())
    assert type(QRDQN.from_pretrained(tmp_path)) is QRDQN
    with pytest.raises(ConfigurationError, match=r"got no config.yaml. Leave env_id out"):
        QRDQN.from_pretrained(tmp_path, "CartPole-v1")


def test_folder_without_a_model_and_missing_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="must have a model.zip or another zip with a model, got no files"):
        DQN.from_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match="a folder that exists"):
        DQN.from_pretrained(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="repo must be USER/NAME on the Hugging Face hub, or a folder"):
        DQN.from_pretrained("none")
    make_run(tmp_path / "run")
    with pytest.raises(ConfigurationError, match=r"filename must be a file of .*, got 'best.zip'. It has config.yaml"):
        DQN.from_pretrained(tmp_path, filename="best.zip")
    with pytest.raises(ConfigurationError, match="must have at most 10 bytes"):
        DQN.from_pretrained(tmp_path / "run", max_size=10)


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_no_link_out_of_the_folder_is_followed(tmp_path: Path) -> None:
    secret = make_run(tmp_path / "secret")
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "model.zip").symlink_to(secret / "model.zip")
    with pytest.raises(CheckpointError, match="must lie inside its folder, got a link to"):
        DQN.from_pretrained(linked)
    agents = tmp_path / "agents"
    agents.mkdir()
    (agents / "run").symlink_to(secret)
    with pytest.raises(ConfigurationError, match="must have a model.zip"):
        DQN.from_pretrained(agents)


def test_damaged_and_hostile_files_are_refused_and_nothing_is_unpickled(runs: Path, tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    run = make_run(tmp_path / "agents/run")
    config = (run / "config.yaml").read_text(encoding="utf-8")
    harmful = "!!python/object/apply:os.mkdir [executed]"
    for content in (harmful, "a: &a [1]\nb: *a", "[1, 2]", "x" * 2**19, "algorithm: DQN"):
        (run / "config.yaml").write_text(content, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=r"agents/run/ must be a run as sb-dqn writes it, got: "):
            DQN.from_pretrained(tmp_path / "agents")
    (run / "config.yaml").write_text(config, encoding="utf-8")
    (run / "model.zip").write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(CheckpointError):
        DQN.from_pretrained(tmp_path / "agents")
    assert not (tmp_path / "executed").exists()
    assert not Path("executed").exists()


def test_agents_in_a_repository_of_the_hub(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    with serve() as (address, state):
        use_hub(monkeypatch, address, tmp_path)
        state.repos[REPO] = {
            path.relative_to(runs).as_posix(): path.read_bytes() for path in runs.rglob("*") if path.is_file()
        }
        assert seed_of(DQN.from_pretrained(REPO, "CartPole-v1")) == 101
        fetched = [request for request in state.requests if request.startswith("GET") and request.endswith(".zip")]
        assert len(fetched) == 1  # of the agents only the one that is loaded
        nested = "runs/DQN_CartPole-v1_100/dqn_CartPole-v1_1/model.zip"
        assert seed_of(DQN.from_pretrained(REPO, filename=nested)) == 100
        with pytest.raises(ConfigurationError, match="revision must be a branch, tag or commit"):
            DQN.from_pretrained(REPO, "CartPole-v1", revision="none")
        state.repos["user/dqn"] = {"model.zip": state.repos[REPO][nested], "../evil.zip": b""}
        with pytest.raises(CheckpointError, match="must lie inside its folder"):
            DQN.from_pretrained("user/dqn")
        del state.repos["user/dqn"]["../evil.zip"]
        assert seed_of(DQN.from_pretrained("user/dqn")) == 100
