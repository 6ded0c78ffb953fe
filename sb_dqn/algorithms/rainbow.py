"""Rainbow and what came after it: their papers' switches and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sb_dqn.algorithms.distributional import IQN, CategoricalDQN, adam_eps
from sb_dqn.checks import over_defaults
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

RAINBOW_PRIORITIES: Mapping[str, Any] = {"alpha": 0.5}
BTR_PRIORITIES: Mapping[str, Any] = {"alpha": 0.2, "beta": Linear(0.45, 1.0)}
SMALL_CNN: Mapping[str, Any] = {"channels": (32, 64), "kernels": (5, 5), "strides": (5, 5)}
IMPALA: Mapping[str, Any] = {"width": 2, "spectral_norm": True, "adaptive_pool": (6, 6)}


class Rainbow(CategoricalDQN):
    """C51 with double Q, dueling, noisy nets, three-step returns and prioritised replay (Hessel et al. 2018, arXiv 1710.02298).

    Steps are env steps: a quarter of the frames that the paper counts. The paper's `exploration` is by noise alone.
    """

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        learning_rate: Any = 6.25e-5,
        learning_starts: int = 20_000,
        n_steps: int = 3,
        target_update_interval: int = 8_000,
        double_q: bool = True,
        dueling: bool = True,
        noisy: bool | str | Mapping[str, Any] = True,
        prioritized_replay: bool | Mapping[str, Any] = RAINBOW_PRIORITIES,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            policy, env,
            learning_rate=learning_rate, learning_starts=learning_starts, n_steps=n_steps,
            target_update_interval=target_update_interval, double_q=double_q, dueling=dueling, noisy=noisy,
            prioritized_replay=over_defaults(prioritized_replay, RAINBOW_PRIORITIES),
            policy_kwargs=adam_eps(policy_kwargs, 1.5e-4), **kwargs,
        )  # fmt: skip


class DataEfficientRainbow(Rainbow):
    """Rainbow for 100,000 env steps: a small net, ten-step returns, an update at every step (van Hasselt et al. 2019, arXiv
    1906.05243)."""

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        *,
        learning_rate: Any = 1e-4,
        buffer_size: int = 100_000,
        learning_starts: int = 1_600,
        train_freq: int | tuple[int, str] = 1,
        n_steps: int = 10,
        target_update_interval: int = 2_000,
        noisy: bool | str | Mapping[str, Any] = {"sigma": 0.1},
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        given, nets = dict(policy_kwargs or {}), policy_class(policy, VALUE_POLICIES, QPolicy)
        if _without_features(given) and nets in (CnnPolicy, CnnLstmPolicy):
            given["features_extractor_kwargs"] = {"features_dim": 256, **SMALL_CNN}
        if _without_features(given) and nets in (MultiInputPolicy, MultiInputLstmPolicy):
            given["features_extractor_kwargs"] = {"cnn_class": "NatureCNN", "cnn_kwargs": dict(SMALL_CNN)}
        if isinstance(noisy, str):
            noisy = {"kind": noisy}
        if not (isinstance(noisy, Mapping) and noisy.get("kind") == "independent"):  # whose sigma is another scale
            noisy = over_defaults(noisy, {"sigma": 0.1})
        super().__init__(
            policy, env,
            learning_rate=learning_rate, buffer_size=buffer_size, learning_starts=learning_starts, train_freq=train_freq,
            n_steps=n_steps, target_update_interval=target_update_interval, noisy=noisy, policy_kwargs=given, **kwargs,
        )  # fmt: skip


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
        if _without_features(given) and nets in (CnnPolicy, CnnLstmPolicy):
            given["features_extractor_class"] = "ImpalaCNN"
            given["features_extractor_kwargs"] = {"features_dim": 512, **IMPALA}
        if _without_features(given) and nets in (MultiInputPolicy, MultiInputLstmPolicy):
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
            munchausen=munchausen, prioritized_replay=over_defaults(prioritized_replay, BTR_PRIORITIES), exploration=exploration,
            policy_kwargs=adam_eps(given, 0.005 / 256), **kwargs,
        )  # fmt: skip


def _without_features(policy_kwargs: Mapping[str, Any]) -> bool:
    return not policy_kwargs.keys() & {"features_extractor_class", "features_extractor_kwargs"}
