"""Constructor arguments in model files: values that load without trust, values that need it, and refused values."""

from __future__ import annotations

import functools
import json
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim

from sb_dqn.checkpoint import decode_value, encode_value
from sb_dqn.checkpoint.encoding.constructor_arguments import TABLE
from sb_dqn.errors import CheckpointError


@dataclass(frozen=True)
class Ramp:
    """A frozen dataclass, like the schedules."""

    start: float
    end: float = math.inf
    inner: Any = None

    def __post_init__(self) -> None:
        if self.start < 0:
            raise ValueError("start must not be negative")


class Mine(nn.Module):
    """A policy class defined by a user."""

    class Inner:
        pass


def my_schedule(step: int, horizon: int) -> float:
    return 0.5


LOCAL: Any = lambda step, horizon: 0.25  # noqa: E731  # a lambda is what is tested
OURS = {"Ramp": Ramp, "Extractor": nn.Flatten}


def through_json(value: Any, **kwargs: Any) -> Any:
    data = json.loads(json.dumps(encode_value("arg", value, OURS), allow_nan=False))
    return decode_value("arg", data, OURS, **kwargs)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2**100, 1e-4, math.inf, -math.inf, "MlpPolicy", [64, 64], (4, "step"), {}, [], (), {"pi": [64], "vf": (1, [2])},
        {0: "a", None: 1}, {"~": 1}, {"optimizer_class": optim.Adam, "optimizer_kwargs": {"eps": 1e-5, "betas": (0.9, 0.95)}},
        {"activation_fn": nn.Tanh, "net_arch": [32]}, Ramp(0.1), Ramp(1.0, 0.1, Ramp(2.0)), [nn.ReLU, nn.Flatten, Ramp],
        torch.float32, torch.device("cpu"), torch.device("cuda:1"), np.float32(0.1), np.int64(3), np.bool_(True),
    ],
)  # fmt: skip
def test_plain_data_and_the_table_load_without_trust(value: Any) -> None:
    found = through_json(value)
    assert found == value
    assert type(found) is type(value)


def test_nan_arrays_partials_paths_and_other_dicts() -> None:
    assert math.isnan(through_json(math.nan))
    array = np.array([[0.1, np.inf], [2.0, np.nan]], np.float32)
    found = through_json({"ladder": array})["ladder"]
    assert (found.dtype, found.tobytes()) == (array.dtype, array.tobytes())
    found[0, 0] = 1.0  # the copy is writable
    leaky = through_json(functools.partial(nn.LeakyReLU, 0.2, inplace=True))
    assert (leaky.func, leaky.args, leaky.keywords) == (nn.LeakyReLU, (0.2,), {"inplace": True})
    for tensor in (torch.tensor(0.0), torch.tensor(3), torch.tensor([[math.inf, 1.0]]), torch.tensor([True, False])):
        same = through_json(tensor)
        assert (same.dtype, same.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(same, tensor)
    assert through_json(Path("runs") / "a") == str(Path("runs") / "a")
    assert through_json(OrderedDict(a=1)) == {"a": 1}


def test_every_class_of_the_table_round_trips() -> None:
    assert {nn.ReLU, nn.Tanh, nn.ELU, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.Mish} <= set(TABLE.values())
    assert {optim.Adam, optim.AdamW, optim.RMSprop, optim.SGD, optim.RAdam, optim.Adagrad} <= set(TABLE.values())
    for cls in TABLE.values():
        assert through_json(cls) is cls


def test_user_code_is_stored_by_path_and_needs_trust() -> None:
    for value, path in ((Mine, "Mine"), (Mine.Inner, "Mine.Inner"), (my_schedule, "my_schedule")):
        data = encode_value("policy", value)
        assert data == {"~": "import", "path": f"{__name__}:{path}"}
        with pytest.raises(
            CheckpointError,
            match=rf"'policy' of the file names the import path '.*:{path}', which loading does not run",
        ):
            decode_value("policy", data)


def test_objects_without_a_path_are_pickled_and_need_trust() -> None:
    rate = 0.125

    class Local:
        def method(self, step: int) -> float:
            return rate

    for value in (LOCAL, lambda step, horizon: rate, Local, Local(), Local().method, Mine.Inner()):
        data = encode_value("learning_rate", value)
        assert data["~"] == "pickle"
        with pytest.raises(
            CheckpointError, match=r"stored as a pickle, which loading does not run.*custom_objects.*trust=True"
        ):
            decode_value("learning_rate", data)


def test_trust_loads_paths_and_pickles() -> None:
    rate = 0.125
    assert through_json(LOCAL, trust=True)(1, 2) == 0.25
    assert through_json(lambda step, horizon: rate, trust=True)(1, 2) == rate
    data = {"~": "import", "path": "collections:OrderedDict.fromkeys"}
    assert decode_value("arg", data, trust=True)("a") == OrderedDict(a=None)


def test_custom_objects_replace_by_name_at_any_depth() -> None:
    data = encode_value("policy_kwargs", {"features_extractor_class": Mine, "net_arch": [64]})
    for name in ("policy_kwargs.features_extractor_class", "features_extractor_class"):
        found = decode_value("policy_kwargs", data, custom_objects={name: nn.Flatten})
        assert found == {"features_extractor_class": nn.Flatten, "net_arch": [64]}
    assert decode_value("policy_kwargs", data, custom_objects={"policy_kwargs": {}}) == {}
    assert decode_value("learning_rate", 0.1, custom_objects={"learning_rate": 0.2}) == 0.2
    with pytest.raises(CheckpointError, match=r"custom_objects=\{'policy_kwargs.features_extractor_class': ...\}"):
        decode_value("policy_kwargs", data, custom_objects={"net_arch": [1]})
    plain = encode_value("policy_kwargs", {"net_arch": [64]})
    assert decode_value("policy_kwargs", plain, custom_objects={"net_arch": [1]}) == {"net_arch": [64]}


def test_no_import_happens_without_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'proof')!r}, 'w').close()\nclass Policy: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    data = {"~": "import", "path": "evil_module:Policy"}
    for hidden in (data, [data], {"a": data}, {"~": "partial", "func": data, "args": [], "keywords": {}}):
        with pytest.raises(CheckpointError, match="trust=True"):
            decode_value("policy", hidden)
    assert not (tmp_path / "proof").exists()
    assert decode_value("policy", data, trust=True).__name__ == "Policy"
    assert (tmp_path / "proof").exists()


def test_errors_of_trusted_code_are_explained() -> None:
    for data in (
        {"~": "import", "path": "no_such_module_at_all:Policy"},
        {"~": "import", "path": "json:NoSuchName"},
        {"~": "pickle", "shows": "<lambda>", "data": "AAAA"},
    ):
        with pytest.raises(CheckpointError, match=r"which fails to load \(.*pass custom_objects=\{'policy': ...\}"):
            decode_value("policy", data, trust=True)


def test_values_that_cannot_be_saved_are_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match=r"argument 'policy_kwargs.lock' is .*cannot be saved"):
        encode_value("policy_kwargs", {"lock": threading.Lock()})
    with pytest.raises(CheckpointError, match="argument 'start' must be .* got a NumPy datetime64"):
        encode_value("start", np.datetime64("2020-01-01"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"~": "class", "name": "Adamm"}, r"got 'Adamm'\. .* Did you mean .*'Adam'"),
        ({"~": "class", "name": []}, "cannot be read"),
        ({"~": "class"}, "cannot be read"),
        ({"~": "object", "name": "ReLU", "fields": {}}, "not a dataclass"),
        ({"~": "object", "name": "Ramp", "fields": {"begin": 1}}, "cannot be read .*begin"),
        ({"~": "object", "name": "Ramp", "fields": {"start": -1}}, "start must not be negative"),
        ({"~": "object", "name": "Ramp", "fields": 3}, "cannot be read"),
        ({"~": "array", "dtype": "O", "shape": [1], "data": "AAAAAAAAAAA="}, "got dtype object"),
        ({"~": "array", "dtype": "<f4", "shape": [3], "data": "AAAA"}, "cannot be read"),
        ({"~": "torch.dtype", "name": "load"}, "must be one of torch, got 'load'"),
        ({"~": "torch.device", "name": "abacus"}, "cannot be read"),
        ({"~": "partial", "func": 3, "args": [], "keywords": {}}, "cannot be read"),
        ({"~": "tuple"}, "cannot be read"),
        ({"~": "dict", "items": [[[], 1]]}, "cannot be read"),
        ({"~": "magic"}, "must be of known kinds, got 'magic'"),
    ],
)
def test_malformed_values_are_refused(data: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        decode_value("arg", data, OURS)
