"""BTR, Beyond the Rainbow (Clark et al. 2024, arXiv 2411.03820): IQN with every addition that pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sb_dqn.algorithms.iqn import IQN
from sb_dqn.checks import merge_defaults
from sb_dqn.core.construction import adam_eps, has_default_features
from sb_dqn.policies import (
    VALUE_POLICIES,
    CnnLstmPolicy,
    CnnPolicy,
    MultiInputLstmPolicy,
    MultiInputPolicy,
    QPolicy,
    policy_class,
)
from sb_dqn.schedules import Linear

BTR_PRIORITIES: Mapping[str, Any] = {"alpha": 0.2, "beta": Linear(0.45, 1.0)}
IMPALA: Mapping[str, Any] = {"width": 2, "spectral_norm": True, "adaptive_pool": (6, 6)}


class BTR(IQN):
    """Beyond the Rainbow (Clark et al. 2024, arXiv 2411.03820): IQN with everything, for 64 lanes.

    An IMPALA torso of twice the width with spectral norm and a 6 x 6 adaptive max-pool, eight fractions, Munchausen, double
    Q left out as in the paper, dueling, noisy nets beside an epsilon that ends half-way, three-step returns.
    """

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        learning_rate: Any = 1e-4,
        buffer_size: int = 2**20,
        learning_starts: int = 200_000,
        batch_size: int = 256,
        gamma: float = 0.997,
        train_freq: int | tuple[int, str] = 64,
        n_steps: int = 3,
        target_update_interval: int = 32_000,
        n_taus: int = 8,
        n_target_taus: int = 8,
        n_policy_taus: int = 8,
        dueling: bool = True,
        noisy: bool | str | Mapping[str, Any] = True,
        munchausen: bool | Mapping[str, Any] = True,
        prioritized_replay: bool | Mapping[str, Any] = BTR_PRIORITIES,
        exploration: str | Mapping[str, Any] = {
            "schedule": Linear(1.0, 0.01, steps=2_000_000),
            "off_after": 25_000_000,
        },
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given, nets = dict(policy_kwargs or {}), policy_class(policy, VALUE_POLICIES, QPolicy)
        if has_default_features(given) and nets in (CnnPolicy, CnnLstmPolicy):
            given["features_extractor_class"] = "ImpalaCNN"
            given["features_extractor_kwargs"] = {"features_dim": 512, **IMPALA}
        if has_default_features(given) and nets in (MultiInputPolicy, MultiInputLstmPolicy):
            given["features_extractor_kwargs"] = {
                "cnn_class": "ImpalaCNN",
                "cnn_output_dim": 512,
                "cnn_kwargs": dict(IMPALA),
            }
        super().__init__(
            policy, env,
            learning_rate=learning_rate, buffer_size=buffer_size, learning_starts=learning_starts, batch_size=batch_size,
            gamma=gamma, train_freq=train_freq, n_steps=n_steps, target_update_interval=target_update_interval,
            n_taus=n_taus, n_target_taus=n_target_taus, n_policy_taus=n_policy_taus, dueling=dueling, noisy=noisy,
            munchausen=munchausen, prioritized_replay=merge_defaults(prioritized_replay, BTR_PRIORITIES), exploration=exploration,
            policy_kwargs=adam_eps(given, 0.005 / 256), **kwargs,
        )  # fmt: skip
