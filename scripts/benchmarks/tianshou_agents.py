"""Tianshou's C51, IQN, FQF and Rainbow, built as in its own examples, with this library's networks and settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from tianshou.algorithm.modelfree.c51 import C51, C51Policy
from tianshou.algorithm.modelfree.fqf import FQF, FQFPolicy
from tianshou.algorithm.modelfree.iqn import IQN, IQNPolicy
from tianshou.algorithm.modelfree.rainbow import RainbowDQN
from tianshou.algorithm.optim import AdamOptimizerFactory, RMSpropOptimizerFactory
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer
from tianshou.env.atari.atari_network import C51Net, DQNet, RainbowNet, ScaledObsInputActionReprNet
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import (
    FractionProposalNetwork,
    FullQuantileFunction,
    ImplicitQuantileNetwork,
    NoisyLinear,
)
from torch import nn

FRAMES: dict[str, Any] = {"c": 4, "h": 84, "w": 84}
NEVER = 10**9


def agent(variant: str, kind: str, settings: Mapping[str, Any]) -> tuple[Any, int]:
    """The algorithm, and how many numbers it trains."""
    build = {"C51": _c51, "Rainbow": _rainbow, "IQN": _iqn, "FQF": _fqf}[variant]
    actions = spaces.Discrete(6 if kind == "Atari" else 2)
    algorithm = build(kind, actions, settings)
    nets = [algorithm.policy.model, *([algorithm.policy.fraction_model] if variant == "FQF" else [])]
    return algorithm, sum(p.numel() for net in nets for p in net.parameters() if p.requires_grad)


def replay(variant: str, kind: str, rows: int) -> Any:
    """A full replay of noise: episodes of 500 steps; frames are stored once and stacked on sampling."""
    rng = np.random.default_rng(0)
    atari = kind == "Atari"
    options: dict[str, Any] = {"stack_num": 4, "ignore_obs_next": True, "save_only_last_obs": True} if atari else {}
    buffer: Any = (
        PrioritizedReplayBuffer(rows, alpha=0.5, beta=0.4, weight_norm=True, **options)
        if variant == "Rainbow"
        else ReplayBuffer(rows, **options)
    )
    for row in range(rows):
        obs = rng.integers(0, 256, (4, 84, 84), np.uint8) if atari else rng.normal(size=4).astype(np.float32)
        ended = row % 500 == 499
        buffer.add(
            Batch(
                obs=obs, act=int(rng.integers(6 if atari else 2)), rew=float(rng.integers(-1, 2)), terminated=ended,
                truncated=False, obs_next=obs, info={},
            )
        )  # fmt: skip
    return buffer


def _optimizer() -> Any:
    return AdamOptimizerFactory(lr=1e-4)


def _scaled(net: Any, kind: str) -> Any:
    """Frames are divided by 255 before the network, as its Atari examples do."""
    return ScaledObsInputActionReprNet(net) if kind == "Atari" else net


def _categorical(policy_of: Any, model: nn.Module, actions: spaces.Discrete, settings: Mapping[str, Any]) -> Any:
    return policy_of(
        model=model, action_space=actions, num_atoms=settings["n_atoms"],
        v_min=settings["v_min"], v_max=settings["v_max"],
    )  # fmt: skip


def _c51(kind: str, actions: spaces.Discrete, settings: Mapping[str, Any]) -> Any:
    count, atoms = int(actions.n), settings["n_atoms"]
    net: Any = (
        C51Net(**FRAMES, action_shape=[count], num_atoms=atoms)
        if kind == "Atari"
        else Net(state_shape=4, action_shape=count, hidden_sizes=[64, 64], softmax=True, num_atoms=atoms)
    )
    policy = _categorical(C51Policy, _scaled(net, kind), actions, settings)
    return C51(policy=policy, optim=_optimizer(), target_update_freq=NEVER)


def _rainbow(kind: str, actions: spaces.Discrete, settings: Mapping[str, Any]) -> Any:
    count, atoms = int(actions.n), settings["n_atoms"]
    stream = {"hidden_sizes": [64], "linear_layer": NoisyLinear}
    net: Any = (
        RainbowNet(**FRAMES, action_shape=[count], num_atoms=atoms)
        if kind == "Atari"
        else Net(
            state_shape=4,
            action_shape=count,
            hidden_sizes=[64],
            softmax=True,
            num_atoms=atoms,
            dueling_param=(stream, stream),
            linear_layer=NoisyLinear,
        )
    )
    policy = _categorical(C51Policy, _scaled(net, kind), actions, settings)
    return RainbowDQN(
        policy=policy, optim=_optimizer(), n_step_return_horizon=settings["n_steps"], target_update_freq=NEVER
    )


def _features(kind: str) -> Any:
    """What the embedding of the fractions is multiplied with: everything below the last hidden layer."""
    net: Any = (
        DQNet(**FRAMES, action_shape=[6], features_only=True)
        if kind == "Atari"
        else Net(state_shape=4, hidden_sizes=[64])
    )
    return _scaled(net, kind)


def _implicit(net_of: Any, kind: str, actions: spaces.Discrete, features: Any) -> Any:
    hidden = [512 if kind == "Atari" else 64]
    return net_of(preprocess_net=features, action_shape=[int(actions.n)], hidden_sizes=hidden, num_cosines=64)


def _iqn(kind: str, actions: spaces.Discrete, settings: Mapping[str, Any]) -> Any:
    policy = IQNPolicy(
        model=_implicit(ImplicitQuantileNetwork, kind, actions, _features(kind)), action_space=actions,
        sample_size=settings["n_policy_taus"], online_sample_size=settings["n_taus"],
        target_sample_size=settings["n_target_taus"],
    )  # fmt: skip
    return IQN(policy=policy, optim=_optimizer(), target_update_freq=NEVER)


def _fqf(kind: str, actions: spaces.Discrete, settings: Mapping[str, Any]) -> Any:
    features = _features(kind)
    policy = FQFPolicy(
        model=_implicit(FullQuantileFunction, kind, actions, features),
        fraction_model=FractionProposalNetwork(settings["n_fractions"], features.get_output_dim()),
        action_space=actions,
    )
    return FQF(
        policy=policy, optim=_optimizer(), fraction_optim=RMSpropOptimizerFactory(lr=2.5e-9),
        num_fractions=settings["n_fractions"], target_update_freq=NEVER,
    )  # fmt: skip
