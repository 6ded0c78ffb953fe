"""Damaged and malicious model files passed to `load`: each raises a clear error, none runs code."""

from __future__ import annotations

import io
import json
import pickle
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.algorithms import DQN
from sb_dqn.checkpoint import read_archive
from sb_dqn.errors import CheckpointError, ConfigurationError
from scripts.benchmarks.fuzz_reader import ALLOWED, members, mutate, zipped
from tests.marks import SLOW
from tests.tiny import quick

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def good() -> bytes:
    """Returns a full checkpoint, taken at 30 of 40 steps."""
    file = io.BytesIO()
    model = quick("CartPole-v1", prioritized_replay=True, buffer_size=60)
    model.learn(40, callback=lambda locals_, _: locals_["self"].num_timesteps < 30).save(file, full=True)
    return file.getvalue()


ADAM = ("state", "learner", "optimizer", "state", "items", 0, 1)
"""Path in the manifest to the optimizer's moments of the first parameter."""


def load(raw: bytes, env: Any = "CartPole-v1") -> DQN:
    return DQN.load(io.BytesIO(raw), env=env, device="cpu")


@SLOW
def test_the_unmodified_file_loads(good: bytes) -> None:
    assert load(good).resume().num_timesteps == 40


def test_truncated_at_every_percent(good: bytes) -> None:
    for percent in range(100):
        with pytest.raises(CheckpointError, match="truncated|empty|not a zip"):
            load(good[: len(good) * percent // 100])


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.path, "ran"))


@pytest.mark.parametrize("member", ["policy", "state", "full", "experience"])
def test_a_pickle_in_any_member(good: bytes, member: str, tmp_path: Path) -> None:
    parts = members(good)
    manifest = json.loads(parts.pop("manifest.json"))
    parts[f"{member}.safetensors"] = pickle.dumps(Bomb(tmp_path / "proof"))
    with pytest.raises(CheckpointError, match=f"{member}.safetensors"):
        load(zipped(parts, manifest))
    assert list(tmp_path.iterdir()) == []


def test_a_pickled_environment_needs_trust(tmp_path: Path) -> None:
    """The environment is the only pickle that a full checkpoint may contain."""
    from tests.tiny import Tiny

    file = io.BytesIO()
    quick(Tiny()).learn(40, callback=lambda locals_, _: locals_["self"].num_timesteps < 30).save(
        file, full=True, trust=True
    )
    with pytest.raises(CheckpointError, match="as a pickle, which loading does not run"):
        load(file.getvalue(), Tiny()).resume()


def modified(good: bytes, *path: Any, value: Any) -> bytes:
    """Changes one entry of the manifest; lengths and digests stay right."""
    parts = members(good)
    manifest = json.loads(parts.pop("manifest.json"))
    node = manifest
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return zipped(parts, manifest)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("arguments", "policy_kwargs"), {"net_arch": [200_000, 200_000]}),  # 160 GB
        (("arguments", "policy_kwargs"), {"net_arch": [1] * 50_000}),  # a layer costs time, too
        (("arguments", "policy_kwargs"), {"net_arch": [3_000_000]}),
    ],
)
def test_a_network_much_larger_than_the_file_is_refused_before_allocation(good: bytes, path: Any, value: Any) -> None:
    raw, before = modified(good, *path, value=value), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match="networks far larger than the parameters in it"):
        load(raw)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("class",), 3, "the file must hold a DQN, got a 3"),
        (("arguments", "policy"), None, "policy"),
        (("arguments", "batch_size"), "many", "batch_size must be .* got 'many'"),
        (("arguments", "nonsense"), 1, "must be among .* got 'nonsense'"),
        (("spaces", "num_envs"), float("1e300"), "does not describe a model|lanes"),
        (("spaces", "frame_stack"), 3, "frame_stack of the file must divide the first axis of Box.* got 3"),
        (("spaces", "frame_stack"), 0, "frame_stack of the file must divide the first axis of Box.* got 0"),
        (("state", "counters"), [], "the state of 'counters' in the file does not fit"),
        (("state", "rng", "explore"), {}, "the state of 'rng' in the file does not fit"),
        (("full", "parts"), {}, "the state of 'statistics' in the file does not fit"),
        (("full", "tick"), 3, "the state of the environment in the file does not fit"),
        (("full", "tick", "slots"), [], "the last step in the file must have 1 or 2 arrivals .* got 0"),
        (
            (*ADAM, "exp_avg_sq"),
            None,
            "the state of 'learner' in the file does not fit .*'exp_avg_sq' must .* got None",
        ),
        ((*ADAM, "exp_avg"), 0.5, "the state of 'learner' in the file does not fit .*'exp_avg' must .* got 0.5"),
        ((*ADAM[:-1], 1), {}, "the state of 'learner' in the file does not fit .* must have .* got none"),
        (("state", "learner", "steps"), [], "the state of 'learner' in the file does not fit"),
        (("state", "exploration", "epsilon"), [], "the state of 'exploration' in the file does not fit"),
        (("full", "session", "since_line"), "x", "the state of log and callbacks in the file does not fit"),
        (
            ("full", "stream", "env"),
            {"kind": "said", "state": {}},
            "the state of the environment in the file does not fit",
        ),
    ],
)
def test_wrong_types_and_shapes_in_the_manifest(good: bytes, path: Any, value: Any, message: str) -> None:
    with pytest.raises(ALLOWED, match=message):
        load(modified(good, *path, value=value)).resume()


def test_a_moment_of_another_shape_is_refused(good: bytes) -> None:
    model = load(good)
    state = model.learner.state_dict()
    state["optimizer"]["state"][0]["exp_avg"] = torch.zeros(3)
    with pytest.raises(ValueError, match=r"the optimizer's 'exp_avg' must have shape .*, got torch.Size\(\[3\]\)"):
        model.learner.load_state_dict(state)


def test_actions_out_of_range_are_refused(good: bytes) -> None:
    ring = load(good).replay.ring
    state = {name: value.clone() for name, value in ring.state_dict().items()}
    state["action"][3] = 2
    with pytest.raises(CheckpointError, match="actions of the replay state must be from 0 to 1, got"):
        ring.load_state_dict(state)


def test_an_unknown_zip_version_is_a_damaged_directory(good: bytes) -> None:
    entry = good.rindex(b"PK\x01\x02")  # the last one of the directory; its seventh byte is the version that is needed
    with pytest.raises(CheckpointError, match="zip directory cannot be read .zip file version 23.0"):
        load(good[: entry + 6] + bytes([230]) + good[entry + 7 :])


@SLOW
def test_random_changes_raise_clear_errors(good: bytes) -> None:
    """Runs a hundred mutations of scripts/benchmarks/fuzz_reader.py, which runs for minutes."""
    rng, refused = np.random.default_rng(0), 0
    for _ in range(100):
        _, raw = mutate(good, rng)
        try:
            load(raw, None)
        except ALLOWED:
            refused += 1
    assert refused > 40


@pytest.mark.parametrize("name", ["../../x", "/x", "a/../../x", "a\x1b[2J"])
def test_the_name_of_a_run_leads_to_no_other_folder(good: bytes, name: str, tmp_path: Path) -> None:
    logs = tmp_path / "logs" / "inner"
    raw = modified(good, "full", "session", "name", value=name)
    model = DQN.load(io.BytesIO(raw), env="CartPole-v1", device="cpu", tensorboard_log=str(logs))
    with pytest.raises(ConfigurationError, match="tb_log_name must be a name inside of tensorboard_log, got"):
        model.resume()
    with pytest.raises(ConfigurationError, match="tb_log_name must be a name inside of tensorboard_log, got"):
        model.learn(10, tb_log_name=name)
    assert list(tmp_path.rglob("*")) == []
    model.learn(10, tb_log_name="group/run")
    assert [path.name for path in (logs / "group").iterdir()] == ["run_1"]


@pytest.mark.parametrize("version", [0, -3])
def test_format_versions_below_1_are_refused(good: bytes, version: int) -> None:
    with pytest.raises(CheckpointError, match="format_version must be at least 1"):
        read_archive(io.BytesIO(modified(good, "format_version", value=version)))
