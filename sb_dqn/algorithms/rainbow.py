"""Rainbow (Hessel et al. 2018) and Data-Efficient Rainbow (van Hasselt et al. 2019): C51 with the settings of their papers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sb_dqn.algorithms.c51 import CategoricalDQN
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

RAINBOW_PRIORITIES: Mapping[str, Any] = {"alpha": 0.5}
SMALL_CNN: Mapping[str, Any] = {"channels": (32, 64), "kernels": (5, 5), "strides": (5, 5)}


class Rainbow(CategoricalDQN):
    """C51 with double Q, dueling, noisy nets, three-step returns and prioritized replay (Hessel et al. 2018, arXiv 1710.02298).

    Steps are env steps, a quarter of the frames in the paper. As in the paper, exploration comes from the noisy layers only.
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
            policy,
            env,
            learning_rate=learning_rate,
            learning_starts=learning_starts,
            n_steps=n_steps,
            target_update_interval=target_update_interval,
            double_q=double_q,
            dueling=dueling,
            noisy=noisy,
            prioritized_replay=merge_defaults(prioritized_replay, RAINBOW_PRIORITIES),
            policy_kwargs=adam_eps(policy_kwargs, 1.5e-4),
            **kwargs,
        )


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
        kwargs_of_policy = dict(policy_kwargs or {})
        policy_type = policy_class(policy, VALUE_POLICIES, QPolicy)
        if has_default_features(kwargs_of_policy) and policy_type in (CnnPolicy, CnnLstmPolicy):
            kwargs_of_policy["features_extractor_kwargs"] = {"features_dim": 256, **SMALL_CNN}
        if has_default_features(kwargs_of_policy) and policy_type in (MultiInputPolicy, MultiInputLstmPolicy):
            kwargs_of_policy["features_extractor_kwargs"] = {"cnn_class": "NatureCNN", "cnn_kwargs": dict(SMALL_CNN)}
        if isinstance(noisy, str):
            noisy = {"kind": noisy}
        if not (isinstance(noisy, Mapping) and noisy.get("kind") == "independent"):  # whose sigma is another scale
            noisy = merge_defaults(noisy, {"sigma": 0.1})
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            buffer_size=buffer_size,
            learning_starts=learning_starts,
            train_freq=train_freq,
            n_steps=n_steps,
            target_update_interval=target_update_interval,
            noisy=noisy,
            policy_kwargs=kwargs_of_policy,
            **kwargs,
        )
