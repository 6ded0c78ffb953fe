"""Models of random settings: each refusal names a setting, and saving, resuming or tracing a run changes nothing of it."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sb_dqn.accelerate.modes import forced_mode
from sb_dqn.algorithms import ALGORITHMS, SAC
from sb_dqn.callbacks import CheckpointCallback
from sb_dqn.core.arguments import constructor_arguments
from sb_dqn.envs.make import make_vec_env
from sb_dqn.errors import ConfigurationError
from tests.continuing import Kept, differences
from tests.marks import first_few
from tests.tiny import POLICY_LEARNERS, SMALL_CNN, lanes, quick

SETTINGS: dict[str, tuple[Any, ...]] = {
    "double_q": (True,), "dueling": (True,), "noisy": (True, "independent"), "munchausen": (True,), "cql_alpha": (0.5,),
    "n_steps": (3, {"start": 5, "end": 1, "updates": 9}), "gamma": (0.9, {"start": 0.9, "end": 0.99, "updates": 9}),
    "prioritized_replay": (True, {"uniform_mix": 0.1}, {"initial": "td_error"}), "hindsight": (True,),
    "resets": (10, {"every": 7, "until": 20}), "redo": (5, {"every": 6, "reset_counts": True}),
    "augmentation": ({"shift": 2, "intensity": 0.1},), "self_prediction": (True,), "ensemble": (3,),
    "target": ("shared",), "iterations": (2,), "act_with": ("target",), "precision": ("bf16",),
    "normalize_observations": (True,), "normalize_rewards": (True,), "value_loss": (True, "two_hot"), "loss": ("mse",),
    "exploration": ("boltzmann", {"off_after": 30}), "evaluation_eps": (0.1,), "train_freq": (3, (1, "episode")),
    "gradient_steps": (-1, 3), "tau": (0.05,), "max_grad_norm": (None, 1.0), "learning_rate": ("linear 1e-3",),
    "actors": ("overlapped",), "use_sde": (True,), "sde_sample_freq": (3,), "action_noise": (True,), "risk": ("cvar 0.5",),
    "ent_coef": ("auto", 0.05), "target_kl": (0.05,), "clip_range_vf": (0.2,), "baseline": ("mean_return", "step_mean"),
    "gae_lambda": (0.9,), "n_epochs": (2,),
}  # fmt: skip
POLICY_SETTINGS: dict[str, tuple[Any, ...]] = {
    "net_arch": ([8], [64, 64]), "layer_norm": (True,), "spectral_norm": (True,), "share_features_extractor": (False,),
    "optimizer_class": (torch.optim.AdamW, torch.optim.RMSprop, torch.optim.SGD), "share_last_layer": (True,),
    "activation_fn": (torch.nn.Tanh, torch.nn.GELU),
}  # fmt: skip
POLICIES = {"vector": "MlpPolicy", "dict": "MultiInputPolicy", "frames": "CnnPolicy"}


def chosen(rng: random.Random, of: dict[str, tuple[Any, ...]], share: float) -> dict[str, Any]:
    """A value for some of the settings."""
    return {name: rng.choice(values) for name, values in of.items() if rng.random() < share}


class Draw:
    """An algorithm, an environment whose state can be stored, and settings that fit together.

    Settings are left out until none is refused: each refusal has to name one of them.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.algorithm = ALGORITHMS[rng.choice(sorted(ALGORITHMS))]
        kind, count = rng.choice(sorted(POLICIES)), rng.choice((1, 2, 4))
        self.policy, taken = POLICIES[kind], constructor_arguments(self.algorithm)
        actions = rng.choice(("discrete", "multi discrete")) if self.algorithm is not SAC else "discrete"
        self.env: Any = partial(lanes, count, partial(Kept, kind, actions, False))
        if self.algorithm.__name__ in POLICY_LEARNERS and rng.random() < 0.5:
            self.policy, self.env = "MlpPolicy", partial(make_vec_env, "Pendulum-v1", count)
        if rng.random() < 0.2:
            self.policy = self.policy.replace("Policy", "LstmPolicy")
        self.settings = {name: value for name, value in chosen(rng, SETTINGS, 0.2).items() if name in taken}
        if "n_steps" in taken and "buffer_size" not in taken:  # that of a rollout
            self.settings["n_steps"] = 8
            self.settings |= {"batch_size": 8} if "batch_size" in taken else {}
        self.kwargs = chosen(rng, POLICY_SETTINGS, 0.2) if self.algorithm.__name__ != "R2D2" else {}
        if self.policy.startswith("Cnn"):
            self.kwargs["features_extractor_kwargs"] = SMALL_CNN
        self.steps = 100
        self._leave_out_refused(rng)

    def make(self, env: Any = None) -> Any:
        """A new model."""
        kwargs = {"policy_kwargs": self.kwargs} if self.kwargs else {}
        return quick(self.env() if env is None else env, self.policy, self.algorithm, **self.settings, **kwargs)

    def _leave_out_refused(self, rng: random.Random) -> None:
        while True:
            try:
                self.make()
                return
            except ConfigurationError as error:
                text = str(error)
            if "policy must be" in text and "Lstm" in self.policy:
                self.policy = self.policy.replace("Lstm", "")
                continue
            mine = [(settings, name) for settings in (self.settings, self.kwargs) for name in settings if name in text]
            assert mine, f"{text} names none of {self.settings} {self.kwargs}"
            settings, name = rng.choice(mine)
            del settings[name]


@pytest.mark.parametrize("seed", first_few(range(40), 4))
def test_a_run_that_is_saved_and_resumed_is_the_run_that_nobody_saved(seed: int, tmp_path: Path) -> None:
    draw = Draw(seed)
    plain, saving = draw.make().learn(draw.steps), draw.make()
    saving.learn(draw.steps, callback=CheckpointCallback(13, tmp_path, full=True))
    assert differences(plain, saving) == []
    files = sorted(tmp_path.glob("*.zip"), key=lambda path: int(path.stem.split("_")[2]))
    resumed = type(plain).load(files[seed % len(files)], env=draw.env(), device="cpu")
    resumed.resume()
    assert differences(plain, resumed) == []


@pytest.mark.parametrize("seed", first_few(range(40), 4))
def test_traced_updates_are_those_of_eager_ones(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    draw = Draw(seed)
    models = []
    for mode in ("eager", "traced"):
        with forced_mode(mode):
            models.append(draw.make().learn(40))
    assert "running without it" not in capsys.readouterr().err
    eager, traced = (dict(model.policy.state_dict()) for model in models)
    for name, value in eager.items():
        torch.testing.assert_close(traced[name], value, atol=0.05 if "precision" in draw.settings else 2e-3, rtol=0.0)
