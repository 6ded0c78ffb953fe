"""A traced run equals the eager one, for every algorithm: users run the first, and many tests look at the second."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from sb_dqn.accelerate import Mode, modes
from sb_dqn.algorithms import ALGORITHMS
from tests.continuous import Reach
from tests.marks import SLOW
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

SETTINGS: dict[str, dict[str, Any]] = {
    "PPO": {"n_steps": 20},
    "PQN": {"n_steps": 20},
    "BTR": {"policy_kwargs": {"net_arch": [8]}, "train_freq": 4},
    "FQF": {"fraction_learning_rate": 1e-3},
}
"""Of algorithms that would make no update, or none that can be seen, in a short run."""


def impala(**options: Any) -> dict[str, Any]:
    """Keywords of a policy with a narrow residual network."""
    kwargs = {"features_dim": 8, "widths": (2, 3), **options}
    return {"features_extractor_class": "ImpalaCNN", "features_extractor_kwargs": kwargs}


def residual(extractor: str) -> dict[str, Any]:
    """Keywords of a policy with residual layers in front of a last hidden one."""
    kwargs = {"features_dim": 8, "n_blocks": 2}
    return {"features_extractor_class": extractor, "features_extractor_kwargs": kwargs, "net_arch": [8]}


IMAGES: dict[str, Any] = {"env": partial(Tiny, "image"), "policy": "CnnPolicy"}
SWITCHES: dict[str, dict[str, Any]] = {
    "DQN, HL-Gauss": {"value_loss": "hl_gauss", "dueling": True},
    "DQN, two-hot of symlog": {"value_loss": {"kind": "two_hot", "transform": "symlog"}},
    "DQN, shared heads": {"target": "shared", "iterations": 3, "double_q": True, "dueling": True, "noisy": True},
    "CategoricalDQN, shared heads": {"target": "shared", "n_steps": 3, "prioritized_replay": True},
    "IQN, shared heads": {"target": "shared", "iterations": 2, "munchausen": True},
    "DQN, ensemble": {"ensemble": 3, "double_q": True, "dueling": True, "prioritized_replay": True},
    "IQN, ensemble": {"ensemble": {"members": 3, "share": 1.0}, "munchausen": True},
    "PQN, HL-Gauss": {"value_loss": True, "n_steps": 20},
    "DQN, augmented": {
        **IMAGES,
        "augmentation": {"shift": 2},
        "policy_kwargs": {"features_extractor_kwargs": SMALL_CNN},
    },
    "DQN, self-prediction": {"self_prediction": {"steps": 3}, "policy_kwargs": {"net_arch": [8, 8]}},
    "DQN, conservative": {"cql_alpha": 1.0, "double_q": True, "munchausen": True},
    "FQF, conservative": {"cql_alpha": 1.0, "target": "shared"},
    "DQN, resets": {"resets": 9, "prioritized_replay": True},
    "DQN, annealed horizon": {
        "resets": 9,
        "n_steps": {"start": 5, "end": 2, "updates": 6},
        "gamma": {"start": 0.7, "end": 0.95, "updates": 6},
    },
    "DQN, acting with the target": {"act_with": "target", "tau": 0.1, "noisy": True},
    "SAC, resets": {"env": Reach, "resets": 9},
    "DQN, ReDo": {"redo": {"every": 9, "threshold": 0.7}, "prioritized_replay": True},
    "SAC, ReDo": {"env": Reach, "redo": {"every": 9, "threshold": 0.7, "reset_counts": True}},
    "PPO, HL-Gauss": {"value_loss": True, "n_steps": 20},
    "A2C, two-hot": {"value_loss": "two_hot"},
    "VPG, HL-Gauss": {"value_loss": "hl_gauss"},
    "SAC, HL-Gauss": {"value_loss": "hl_gauss"},
    "SAC, two-hot": {"env": Reach, "value_loss": "two_hot"},
    "SAC, state-dependent": {"env": Reach, "use_sde": True, "use_sde_at_warmup": True, "action_noise": True},
    "PPO, state-dependent": {"env": Reach, "use_sde": True, "sde_sample_freq": 4, "n_steps": 20},
    "A2C, state-dependent": {
        "env": Reach,
        "use_sde": True,
        "policy_kwargs": {"squash_output": True, "use_expln": True},
    },
    "DQN, Impoola": {
        **IMAGES,
        "policy_kwargs": impala(pool="avg", layer_norm=True),
        "dueling": True,
        "noisy": True,
        "prioritized_replay": True,
    },
    "Rainbow, SimBa": {"policy_kwargs": residual("SimBa"), "gradient_steps": 2},
    "DQN, multi-skip": {"policy_kwargs": residual("MultiSkipMLP"), "noisy": True, "prioritized_replay": True},
    "PQN, multi-skip": {"policy_kwargs": residual("MultiSkipMLP"), "n_steps": 20},
    "SAC, SimBa": {"env": Reach, "policy_kwargs": residual("SimBa")},
    "BTR, layer norm": {**IMAGES, "train_freq": 4, "policy_kwargs": impala(spectral_norm=True, layer_norm=True)},
}
"""Settings of runs besides those of all algorithms."""


def trained(name: str, mode: Mode) -> Any:
    settings = {**SETTINGS, **SWITCHES}.get(name, {})
    env = {"env": lanes(2, settings["env"])} if "env" in settings else {}
    model = quick(algorithm=ALGORITHMS[name.partition(",")[0]], **{**settings, **env})
    if mode == "eager":
        model.mode = mode
    return model.learn(60)


@SLOW
@pytest.mark.parametrize("name", [*ALGORITHMS, *SWITCHES])
def test_traced_and_eager_runs_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "WARM_UP_UPDATES", 2)  # after which updates of convolutions are traced
    traced, eager = trained(name, "traced"), trained(name, "eager")
    assert traced._n_updates == eager._n_updates >= 2
    # a trace of a recurrent network would contain each time step: its updates are eager on the CPU
    assert (traced.update_runner.mode, eager.update_runner.mode) == ("eager" if name == "R2D2" else "traced", "eager")
    torch.testing.assert_close(traced.learner.flat, eager.learner.flat, rtol=1e-4, atol=1e-5)
