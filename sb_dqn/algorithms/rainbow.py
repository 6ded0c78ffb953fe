"""Rainbow (Hessel et al. 2018) and Data-Efficient Rainbow (van Hasselt et al. 2019): C51 with the settings of their papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import Unpack

from sb_dqn.algorithms.c51 import C51Keywords, CategoricalDQN
from sb_dqn.checks import merge_defaults
from sb_dqn.core.construction import adam_eps, own_features
from sb_dqn.policies import QPolicy
from sb_dqn.types import EnvLike, Settings

RAINBOW_PRIORITIES: Settings = {"alpha": 0.5}
SMALL_CNN: Settings = {"channels": (32, 64), "kernels": (5, 5), "strides": (5, 5)}


class Rainbow(CategoricalDQN):
    """C51 with double Q, dueling, noisy nets, three-step returns and prioritized replay (Hessel et al. 2018, arXiv 1710.02298).

    Steps are env steps, a quarter of the frames in the paper. As in the paper, exploration comes from the noisy layers only.
    """

    defaults: ClassVar[C51Keywords] = {
        "learning_rate": 6.25e-5,
        "learning_starts": 20_000,
        "n_steps": 3,
        "target_update_interval": 8_000,
        "double_q": True,
        "dueling": True,
        "noisy": True,
        "prioritized_replay": RAINBOW_PRIORITIES,
    }

    def __init__(self, policy: str | type[QPolicy], env: EnvLike, **kwargs: Unpack[C51Keywords]) -> None:
        kwargs = self.defaults | kwargs
        kwargs["prioritized_replay"] = merge_defaults(kwargs["prioritized_replay"], RAINBOW_PRIORITIES)
        kwargs["policy_kwargs"] = adam_eps(kwargs.get("policy_kwargs"), 1.5e-4)
        super().__init__(policy, env, **kwargs)


class DataEfficientRainbow(Rainbow):
    """Rainbow for 100,000 env steps: a small net, ten-step returns, an update at every step (van Hasselt et al. 2019, arXiv
    1906.05243)."""

    defaults: ClassVar[C51Keywords] = {
        "learning_rate": 1e-4,
        "buffer_size": 100_000,
        "learning_starts": 1_600,
        "train_freq": 1,
        "n_steps": 10,
        "target_update_interval": 2_000,
        "noisy": {"sigma": 0.1},
    }

    def __init__(self, policy: str | type[QPolicy], env: EnvLike, **kwargs: Unpack[C51Keywords]) -> None:
        kwargs = self.defaults | kwargs
        kwargs["policy_kwargs"] = own_features(
            policy,
            kwargs.get("policy_kwargs"),
            image={"features_extractor_kwargs": {"features_dim": 256, **SMALL_CNN}},
            dict={"features_extractor_kwargs": {"cnn_class": "NatureCNN", "cnn_kwargs": dict(SMALL_CNN)}},
        )
        noisy = kwargs["noisy"]
        if isinstance(noisy, str):
            noisy = {"kind": noisy}
        if not (isinstance(noisy, Mapping) and noisy.get("kind") == "independent"):  # whose sigma is another scale
            noisy = merge_defaults(noisy, {"sigma": 0.1})
        kwargs["noisy"] = noisy
        super().__init__(policy, env, **kwargs)
