"""BTR, Beyond the Rainbow (Clark et al. 2024, arXiv 2411.03820): IQN with every addition that pays."""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import Unpack

from sb_dqn.algorithms.iqn import IQN, IQNKeywords
from sb_dqn.checks import merge_defaults
from sb_dqn.core.construction import adam_eps, own_features
from sb_dqn.policies import QPolicy
from sb_dqn.schedules import Linear
from sb_dqn.types import EnvLike, Settings

BTR_PRIORITIES: Settings = {"alpha": 0.2, "beta": Linear(0.45, 1.0)}
IMPALA: Settings = {"width": 2, "spectral_norm": True, "adaptive_pool": (6, 6)}


class BTR(IQN):
    """Beyond the Rainbow (Clark et al. 2024, arXiv 2411.03820): IQN with all extensions, for 64 lanes.

    IMPALA network of double width with spectral norm and 6 x 6 adaptive max-pooling, eight fractions, Munchausen, dueling,
    three-step returns, and noisy layers with an epsilon that ends half-way. No double Q-learning, as in the paper.
    """

    defaults: ClassVar[IQNKeywords] = {
        "learning_rate": 1e-4,
        "buffer_size": 2**20,
        "learning_starts": 200_000,
        "batch_size": 256,
        "gamma": 0.997,
        "train_freq": 64,
        "n_steps": 3,
        "target_update_interval": 32_000,
        "dueling": True,
        "noisy": True,
        "munchausen": True,
        "prioritized_replay": BTR_PRIORITIES,
        "exploration": {"schedule": Linear(1.0, 0.01, steps=2_000_000), "off_after": 25_000_000},
    }

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: EnvLike,
        *,
        n_taus: int = 8,
        n_target_taus: int = 8,
        n_policy_taus: int = 8,
        **kwargs: Unpack[IQNKeywords],
    ) -> None:
        kwargs = self.defaults | kwargs
        image = {"features_dim": 512, **IMPALA}
        parts = {"cnn_class": "ImpalaCNN", "cnn_output_dim": 512, "cnn_kwargs": dict(IMPALA)}
        kwargs_of_policy = own_features(
            policy,
            kwargs.get("policy_kwargs"),
            image={"features_extractor_class": "ImpalaCNN", "features_extractor_kwargs": image},
            dict={"features_extractor_kwargs": parts},
        )
        kwargs["prioritized_replay"] = merge_defaults(kwargs["prioritized_replay"], BTR_PRIORITIES)
        kwargs["policy_kwargs"] = adam_eps(kwargs_of_policy, 0.005 / 256)
        super().__init__(policy, env, n_taus=n_taus, n_target_taus=n_target_taus, n_policy_taus=n_policy_taus, **kwargs)
