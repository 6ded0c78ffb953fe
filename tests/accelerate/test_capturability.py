"""Traced updates can be captured as a CUDA graph: no operation reads a value, and all shapes are fixed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from sb_dqn import devices
from sb_dqn.accelerate.backends import _trace
from sb_dqn.algorithms import ALGORITHMS, SAC
from tests.choices import Choices
from tests.combinations import TORSOS, Combination, covering, label, make, make_pqn
from tests.continuous import Reach
from tests.marks import SLOW, a_few, first_few
from tests.tiny import Tiny, lanes, quick

READS = {
    "_local_scalar_dense", "item", "nonzero", "nonzero_static", "masked_select", "unique", "_unique", "_unique2",
    "unique_consecutive", "unique_dim", "equal", "is_nonzero", "repeat_interleave", "multinomial",
}  # fmt: skip
"""Operations that read a value, or whose shape depends on one."""
INDEXED = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
RECURRENT: dict[str, Any] = {"policy": "MlpLstmPolicy", "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6}}
REPLAYED: dict[str, Any] = {**RECURRENT, "sequences": {"batch_T": 4, "warmup_T": 2, "store_rnn_state_interval": 2}}
ROLLOUT: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "n_epochs": 1}
IMPALA = {"features_dim": 8, "widths": (2, 2, 2), "spectral_norm": True, "adaptive_pool": (2, 2)}
OFTEN: dict[str, Any] = {"train_freq": 4, "exploration": {"schedule": 0.1}}
BTR_FROM_FRAMES: dict[str, Any] = {
    **OFTEN,
    "policy": "CnnPolicy",
    "env": "image",
    "policy_kwargs": {"features_extractor_class": "ImpalaCNN", "features_extractor_kwargs": IMPALA},
}
OF_ALGORITHMS: dict[str, dict[str, Any]] = {
    **{name: {} for name in ALGORITHMS},
    "BTR": OFTEN,
    "DataEfficientRainbow": {"train_freq": 4},
    "PERDQN": {"prioritized_replay": {"uniform_mix": 0.3}, "n_steps": 3},
    "PPO": {**ROLLOUT, "clip_range_vf": 0.2, "target_kl": 10.0},
    "PQN": {"n_steps": 10},
}
"""Settings of a model of each algorithm."""
OTHERS: dict[str, dict[str, Any]] = {
    "BTR from frames": BTR_FROM_FRAMES,
    "BTR in bf16": {**BTR_FROM_FRAMES, "precision": "bf16"},
    "Rainbow with an average over the image": {
        "policy": "CnnPolicy",
        "env": "image",
        "policy_kwargs": {
            "features_extractor_class": "ImpalaCNN",
            "features_extractor_kwargs": {"features_dim": 8, "widths": (2, 2), "pool": "avg", "layer_norm": True},
        },
    },
    "Rainbow with SimBa": {"policy_kwargs": {"features_extractor_class": "SimBa", "net_arch": []}},
    "IQN with multi-skip blocks": {"policy_kwargs": {"features_extractor_class": "MultiSkipMLP"}},
    "Rainbow, normalized": {"normalize_observations": True, "normalize_rewards": True},
    "PPO, normalized": {**ROLLOUT, "normalize_observations": True, "normalize_rewards": True},
    "SAC of boxes": {"env": "box"},
    "PPO of boxes": {**ROLLOUT, "env": "box"},
    "SAC, state-dependent": {"env": "box", "use_sde": True},
    "PPO, state-dependent": {**ROLLOUT, "env": "box", "use_sde": True},
    "PPO from frames": {**ROLLOUT, "policy": "CnnPolicy", "env": "image", "policy_kwargs": TORSOS["frames"]},
    "DQN, HL-Gauss": {"value_loss": "hl_gauss"},
    "DQN, two-hot of symlog": {"value_loss": {"kind": "two_hot", "transform": "symlog"}},
    "PPO, HL-Gauss": {**ROLLOUT, "value_loss": "hl_gauss"},
    "SAC, HL-Gauss": {"value_loss": "hl_gauss"},
    "SAC of boxes, two-hot": {"env": "box", "value_loss": "two_hot"},
    "DQN, shared heads": {"target": "shared", "iterations": 3, "noisy": True, "prioritized_replay": True},
    "IQN, shared heads": {"target": "shared", "iterations": 3, "double_q": True},
    "DQN, ensemble": {"ensemble": 3, "prioritized_replay": True},
    "IQN, ensemble": {"ensemble": 3, "double_q": True},
    "DQN with an LSTM": {**REPLAYED, "prioritized_replay": True, "double_q": True},
    **{f"{name} with an LSTM": REPLAYED for name in ("CategoricalDQN", "QRDQN", "IQN", "FQF", "MunchausenDQN")},
    "A2C with an LSTM": {**RECURRENT, "n_steps": 8},
    "PPO with an LSTM": {**ROLLOUT, **RECURRENT},
}
"""Switches besides those of `tests.combinations`."""
ENVS: dict[str, Any] = {"box": Reach, "image": partial(Choices, "frames", "discrete", False)}
PAIRS = covering(2)


def faults(graph: GraphModule) -> list[str]:
    """Returns what a CUDA graph cannot capture."""
    found = []
    for node in graph.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = node.target._schema.name.split("::")[1]
        values = [node.meta.get("val")] if torch.is_tensor(node.meta.get("val")) else list(node.meta.get("val") or ())
        indices = node.args[1] if name in INDEXED else ()
        masks = [each for each in indices if each is not None and each.meta["val"].dtype in (torch.bool, torch.uint8)]
        if name in READS:
            found.append(f"{name} reads a value")
        if masks:
            found.append(f"{name} has a boolean index")
        if not all(isinstance(size, int) for value in values if torch.is_tensor(value) for size in value.shape):
            found.append(f"{name} has a shape that depends on values")
        if name.startswith("lift_fresh"):
            found.append(f"{name} copies a tensor of the host, made in each call")
        if str(node.kwargs.get("device", "cpu")) != "cpu":
            found.append(f"{name} copies to another device")
    return found


def traced(model: Any) -> GraphModule:
    """Returns the graph of sampling, gradient and feedback of a model that has learned a little."""
    updates = model.update_runner
    updates.experience.refresh()
    (numbers, _), *_ = updates.functions.values()
    with updates.experience.preserve_state():
        return _trace(partial(updates.sample_and_differentiate, updates.experience.sample_from), (numbers,))


@pytest.fixture(autouse=True)
def as_on_a_gpu(eagerly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "HOST_DEVICES", ())


@SLOW
@pytest.mark.parametrize("combination", first_few(PAIRS, 3), ids=label)
def test_q_agents_can_be_captured(combination: Combination) -> None:
    assert faults(traced(make(combination).learn(24))) == []


@SLOW
@pytest.mark.parametrize("combination", [row for row in PAIRS if row["head"] == "scalar"][:3], ids=label)
def test_pqn_can_be_captured(combination: Combination) -> None:
    assert faults(traced(make_pqn(combination).learn(24))) == []


@SLOW
@pytest.mark.parametrize(
    ("name", "settings"),
    a_few({**OF_ALGORITHMS, **OTHERS}.items(), "DQN", "CategoricalDQN", "R2D2", "SAC", "PPO"),
    ids=[*OF_ALGORITHMS, *OTHERS],
)
def test_every_algorithm_can_be_captured(name: str, settings: dict[str, Any]) -> None:
    settings = dict(settings)
    algorithm: Any = ALGORITHMS[name.split()[0].removesuffix(",")]
    if algorithm is SAC:
        settings.setdefault("env", "box")
    env = ENVS.get(settings.pop("env", ""), Tiny)
    model = quick(lanes(2, env), algorithm=algorithm, **settings)
    assert faults(traced(model.learn(40))) == []


DECOYS: dict[str, Callable[[Tensor], Tensor]] = {
    "nonzero": lambda x: x.nonzero(),
    "index": lambda x: x[x > 0.5],
    "index_put": lambda x: x.clone().index_put_((x > 0.5,), x.new_zeros(())),
    "masked_select": lambda x: x.masked_select(x > 0.5),
    "multinomial": lambda x: torch.multinomial(x, 2),
    "repeat_interleave": lambda x: x.repeat_interleave((x > 0.5).long()),
    "_to_copy": lambda x: x.to("meta"),
    "lift_fresh_copy": lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("name", DECOYS)
def test_what_cannot_be_captured_is_seen(name: str) -> None:
    found = faults(_trace(DECOYS[name], (torch.tensor([0.3, 0.7, 0.9]),)))
    assert any(fault.startswith(name) for fault in found)
