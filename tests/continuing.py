"""Everything that a model consists of, so that two can be compared bit for bit; and a game that can say where it stands."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch

from sb_dqn.checkpoint import pack
from tests.choices import Choices


def everything(model: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Parameters, targets, optimizer, counters, generators, replay, statistics: all but the times on the clock."""
    parts = {name: part.state_dict() for name, part in {**model.saved_parts(), **model.run_parts()}.items()}
    parts["statistics"].pop("elapsed")
    for episode in parts["statistics"]["ep_info_buffer"]:
        episode.pop("t")
    kept = model._experience.state_dict()
    if "ring/obs/obs" not in kept and not any(name.startswith("ring/obs/") for name in kept):
        raise AssertionError("no observations among what is learned from")
    skeleton, tensors = pack({**parts, "policy": dict(model.policy.state_dict()), "experience": kept})
    return skeleton, {name: tensor.clone() for name, tensor in tensors.items()}


def differences(one: Any, other: Any) -> list[str]:
    """Names of what differs between two models, by a single bit."""
    (left, mine), (right, theirs) = everything(one), everything(other)
    found = [] if left == right else [f"plain data: {left} {right}"]
    for name in sorted({*mine, *theirs}):
        a, b = mine.get(name), theirs.get(name)
        if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape or raw(a) != raw(b):
            found.append(name)
    return found


def raw(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor: NaN equals itself, 0.0 is not -0.0."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def digest(model: Any) -> str:
    """One line for all of it."""
    skeleton, tensors = everything(model)
    summed = hashlib.sha256(json.dumps(skeleton, sort_keys=True).encode())
    for name in sorted(tensors):
        summed.update(name.encode() + raw(tensors[name]))
    return summed.hexdigest()


class Kept(Choices):
    """`Choices` that offer their state, beside the generator that every environment has."""

    def state_dict(self) -> dict[str, Any]:
        return {"t": self.t, "legal": self.legal.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.t, self.legal = int(state["t"]), np.array(state["legal"])
