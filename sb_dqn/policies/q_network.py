"""Q-network: from observations to a value object, with an optional recurrent layer."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.ensemble import Ensemble, EnsembleLinear, EnsembleOutputs, Prior
from sb_dqn.nn.heads.binned import BinnedHead
from sb_dqn.nn.heads.scalar import Distribution, Outputs, Scalar
from sb_dqn.nn.heads.shared import SharedOutputs
from sb_dqn.nn.latent import LatentModel, latent_shape, renormalized
from sb_dqn.nn.layers.linear import Linear, MakeLinear, Noisy, NoisyLinear, assign_noise
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.norms import SpectralLinear
from sb_dqn.nn.layers.recurrent import FEATURES, RecurrentConfig, RecurrentLayer, zero_state
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.mlp import DuelingStreams, HiddenLayers
from sb_dqn.policies.base import keep_state_names
from sb_dqn.spaces import ActionShape


@dataclass(frozen=True)
class QNetworkConfig:
    """The settings of a Q-learning algorithm that change its network.

    Args:
        distribution: what the network learns about the return.
        dueling: separate output layers for the state value and for the advantages.
        noisy: noise in the weights of the head and of every hidden layer (behind the recurrent layer, if any). If None, the weights
            have no noise.
        act_with: "online" or "target": the network that selects actions.
        self_prediction: the network has a model of latent states, and the hidden layers read these renormalized.
        iterations: K, number of heads that learn, with head 0 as the target of the first; 0 is a single head.
        ensemble: number of members, each with its own hidden layers and head on the same features. If None, there is one.
    """

    distribution: Distribution = field(default_factory=Scalar)
    dueling: bool = False
    noisy: Noisy | None = None
    act_with: str = "online"
    self_prediction: bool = False
    iterations: int = 0
    ensemble: Ensemble | None = None

    @property
    def linear(self) -> MakeLinear:
        if self.ensemble is not None:
            return partial(EnsembleLinear, members=self.ensemble.members)
        return Linear if self.noisy is None else partial(NoisyLinear, noisy=self.noisy)


@dataclass(frozen=True)
class TorsoConfig:
    """Hidden layers between features and head.

    Args:
        widths: widths of the layers; dueling duplicates the last one unless it is shared.
        activation_fn: activation after each layer.
        layer_norm: layer norm before each activation.
        spectral_norm: divide the weights by their largest singular value.
        scale_trunk_gradient: with dueling, multiply the gradient below the last layer by 1/sqrt(2).
        share_last_layer: with dueling, the last layer is one for state value and advantages.
        xavier_init: Xavier's uniform initial weights (Glorot and Bengio 2010) and biases of 0 in all linear layers and convolutions of
            the network but those of an embedding of fractions. If False, each layer has its own initial weights.
    """

    widths: Sequence[int]
    activation_fn: type[nn.Module] = nn.ReLU
    layer_norm: bool = False
    spectral_norm: bool = False
    scale_trunk_gradient: bool = False
    share_last_layer: bool = False
    xavier_init: bool = False


class UnrolledFeatures(NamedTuple):
    """Recurrent features along N sequences."""

    trained: Tensor
    """`[T, N, H]` at the trained steps."""
    after: Tensor | None
    """`[n, N, H]` at the steps after the trained ones, without a gradient, or None if they were not requested."""


class QNetwork(nn.Module):
    """Features, hidden layers and a head; a recurrent network has an encoder and a recurrent layer after the features.

    Encoders are never noisy: a stored state is then a function of the weights alone.

    Args:
        features: module from observations to `[N, features_dim]`.
        torso: hidden layers.
        actions: shape of the action space.
        config: dueling, noisy, distribution.
        recurrent: recurrent layer. If None, the network is feed-forward.
    """

    def __init__(
        self,
        features: Features,
        torso: TorsoConfig,
        actions: ActionShape,
        config: QNetworkConfig = QNetworkConfig(),
        recurrent: RecurrentConfig | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.num_actions = actions.num_actions
        self.features: Any = features
        width = features.features_dim
        layers = partial(HiddenLayers, activation_fn=torso.activation_fn, layer_norm=torso.layer_norm)
        self.recurrent_layer: RecurrentLayer | None = None
        if recurrent is not None:
            plain = SpectralLinear if torso.spectral_norm else Linear
            self.encoder = layers(width, recurrent.encoder_arch, linear=plain)
            extra = recurrent.num_inputs(actions.shape, actions.num_actions)
            self.recurrent_layer = RecurrentLayer(self.encoder.out_features + extra, recurrent)
            width = recurrent.hidden_size
        linear = SpectralLinear if torso.spectral_norm else config.linear
        self.torso = layers(width, torso.widths[:-1], linear=linear)
        self.embedding = config.distribution.make_embedding(self.torso.out_features)
        last = partial(layers, self.torso.out_features, torso.widths[-1:], linear=linear)
        scale = 1.0 / math.sqrt(2.0) if torso.scale_trunk_gradient else 1.0
        two_streams = config.dueling and not torso.share_last_layer
        self.last: nn.Module = DuelingStreams(last(), last(), scale) if two_streams else last()
        ensemble = config.ensemble
        with_prior = ensemble is not None and ensemble.prior_scale > 0
        single = Outputs if ensemble is None else partial(EnsembleOutputs, with_prior=with_prior)
        outputs = partial(
            partial(SharedOutputs, iterations=config.iterations) if config.iterations else single,
            config.linear,
            torso.widths[-1] if torso.widths else width,
            branches=actions.branches,
            branched=actions.branched,
            dueling=config.dueling,
        )
        even = min(actions.branches) == max(actions.branches)
        self.head: Any = config.distribution.make_head(
            lambda depth: outputs(depth=depth), None if even else torch.as_tensor(actions.legal)
        )
        self.prior: Prior | None = None
        if ensemble is not None and with_prior:
            count = cast(Any, self.head).outputs.num_prior
            self.prior = Prior(features, torso.widths, torso.activation_fn, count, ensemble)
        self.latent_model: LatentModel | None = None
        if config.self_prediction:
            shape = None if torso.widths[:-1] else latent_shape(features)
            self.latent_model = LatentModel(
                self.torso.out_features, shape, actions.branches, self._check_projection(torso, recurrent)
            )
        if torso.xavier_init:
            self._make_xavier()
            if isinstance(self.head, BinnedHead) and self.head.bins.kind == "two_hot":
                self.head.make_uniform()
        self.noise_width = assign_noise(self)
        if recurrent is not None:
            behind = {name: f"answer.{name}" for name in ("torso", "embedding", "last", "head")}
            keep_state_names(self, {"recurrent_layer": "memory", **behind})

    def forward(
        self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None, acting: bool = False
    ) -> Any:
        """Returns a value object; of an ensemble, for K N rows, those of one member after those of another.

        Args:
            obs: observations, a flat dict of `[N, *shape]`; for a recurrent network its recurrent features
                `{"features": [N, H]}`.
            mask: `[N, (D,) A]` bool, legal actions. If None, all actions are legal.
            noise: random numbers. If None, weights are their means and fractions are evenly spaced.
            acting: if True, the risk distortion of the distribution is applied, if there is one; learning is risk-neutral.
                With several heads, the noise draws one of them for each row.
        """
        if acting and noise is not None and self.config.iterations > 1:
            noise = self._with_heads(noise)
        x, fractions = self.embed(obs, noise, acting)
        if self.config.ensemble is not None and mask is not None:
            mask = mask.repeat(self.config.ensemble.members, *(1,) * (mask.dim() - 1))
        return self.head(x, mask, noise, fractions)

    def _make_xavier(self) -> None:
        own = {module for part in (self.embedding, self.prior) if part is not None for module in part.modules()}
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d, NoisyLinear, EnsembleLinear)) and module not in own:
                members = module.weight.view(module.shape) if isinstance(module, EnsembleLinear) else [module.weight]
                for weight in members:
                    nn.init.xavier_uniform_(weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def embed(self, obs: dict[str, Tensor], noise: Noise | None = None, acting: bool = False) -> tuple[Tensor, Any]:
        """Returns the features `[N, ..., H]` that the head maps to values, and the fractions of an implicit head. See `forward`."""
        x = self.features(obs) if self.recurrent_layer is None else obs[FEATURES]
        ensemble = self.config.ensemble
        x = self.torso(x if ensemble is None else x.unsqueeze(0), noise)
        if self.latent_model is not None:
            x = renormalized(x)
        fractions = None
        if self.embedding is not None:
            rows = x if ensemble is None else x.expand(ensemble.members, -1, -1).flatten(0, 1)
            x, fractions = self.embedding(rows, noise, acting)
            x = x if ensemble is None else x.unflatten(0, (ensemble.members, -1))
        x = self.last(x, noise)
        if self.prior is not None:
            prior = self.prior(obs)
            prior = prior.view(*prior.shape[:2], *(1,) * (x.dim() - 3), -1)
            x = torch.cat([x.expand(len(prior), *x.shape[1:]), prior.expand(-1, -1, *x.shape[2:-1], -1)], -1)
        return x, fractions

    def _with_heads(self, noise: Noise) -> Noise:
        """Returns noise whose last uniform numbers have become one of the heads 1 to K for each row."""
        count = self.config.iterations
        heads = (noise.uniform[:, -1] * count).long().clamp_max(count - 1) + 1
        return noise._replace(uniform=noise.uniform[:, :-1], heads=heads)

    def _check_projection(self, torso: TorsoConfig, recurrent: RecurrentConfig | None) -> int:
        """Returns the width of a projection of the latent state, that of the last hidden layers."""
        if recurrent is not None:
            raise ConfigurationError(
                "self_prediction must be False with a recurrent policy, got True. Use 'MlpPolicy', 'CnnPolicy' or 'MultiInputPolicy'."
            )
        if not torso.widths or (len(torso.widths) < 2 and not len(list(self.features.parameters()))):
            raise ConfigurationError(
                f"policy_kwargs['net_arch'] must have a hidden layer behind the latent state with self_prediction, got "
                f"{list(torso.widths)}. Give for example [256, 256]."
            )
        return torso.widths[-1] * (2 if isinstance(self.last, DuelingStreams) else 1)

    def latent(self, obs: dict[str, Tensor]) -> Tensor:
        """Returns the latent states `[N, F]` of observations: what the last hidden layers read."""
        return renormalized(self.torso(self.features(obs)))

    def projection(self, z: Tensor) -> Tensor:
        """Returns the projections `[..., P]` of latent states: the last hidden layers, without activation; both streams if dueling."""
        last: Any = self.last
        stacks = [last.of_state, last.of_actions] if isinstance(last, DuelingStreams) else [last]
        return torch.cat([stack.linears[-1](z) for stack in stacks], -1)

    def predicted_projections(self, z: Tensor, actions: Tensor) -> Tensor:
        """Returns the predicted projections `[K, N, P]` of the states after each of K actions `[K, N, ...]` from `z`."""
        model = self.latent_model
        assert model is not None
        after = model(z, actions)
        return model.predictor(self.projection(after.flatten(0, 1))).view(*after.shape[:2], -1)  # type: ignore[no-any-return]

    def recurrent_inputs(self, obs: dict[str, Tensor], action: Tensor, reward: Tensor) -> Tensor:
        """Returns the inputs of the recurrent layer for N rows, `[N, E]`.

        Args:
            obs: flat dict of `[N, *shape]`.
            action: `[N]` or `[N, D]` int64, the previous action, or -1 if there is none.
            reward: `[N]`, the previous reward.
        """
        assert self.recurrent_layer is not None
        features = self.encoder(self.features(obs)).float()
        return self.recurrent_layer.config.inputs(features, action, reward, self.num_actions)

    def step(
        self,
        obs: dict[str, Tensor],
        mask: Tensor | None,
        action: Tensor,
        reward: Tensor,
        state: Tensor,
        noise: Noise | None = None,
        acting: bool = False,
    ) -> tuple[Any, Tensor]:
        """Makes one recurrent step of N lanes; returns a value object and the next state `[N, P]`."""
        assert self.recurrent_layer is not None
        features, state = self.recurrent_layer(self.recurrent_inputs(obs, action, reward).unsqueeze(0), state)
        return self({FEATURES: features.squeeze(0)}, mask, noise, acting), state

    def unroll(
        self, obs: dict[str, Tensor], extra: Mapping[str, Tensor], warmup: int, length: int, after: bool = True
    ) -> UnrolledFeatures:
        """Returns the recurrent features along N sequences; gradients flow through the trained steps only.

        Args:
            obs: `[(W + T + n) * N, ...]`, time-major.
            extra: sequence inputs from `SequenceView.gather`.
            warmup: number W of burn-in steps.
            length: number T of trained steps.
            after: if True, the features of the n steps after the trained ones are returned too.
        """
        assert self.recurrent_layer is not None
        layer = self.recurrent_layer
        action = extra["previous_action"]
        reward = extra["previous_reward"]
        count = extra["end"].shape[0] // length
        begins = extra["begins"].view(-1, count)

        def inputs(first: int, last: int) -> Tensor:
            steps = slice(first * count, last * count)
            part = {key: column[steps] for key, column in obs.items()}
            x = self.recurrent_inputs(part, action[steps], reward[steps])
            return x.view(last - first, count, x.shape[-1])

        with torch.no_grad():
            size = layer.config.state_size
            state = extra["state"] if "state" in extra else action.new_zeros((count, size)).float()
            if warmup:
                state = layer.burn_in(inputs(0, warmup), state, begins[: warmup + 1])
            else:
                state = zero_state(state, begins[0])
        trained, state = layer(inputs(warmup, warmup + length), state)
        if not after:
            return UnrolledFeatures(trained, None)
        with torch.no_grad():
            return UnrolledFeatures(trained, layer(inputs(warmup + length, len(begins)), state.detach())[0])

    def make_noise(self, rows: int, uniform: int, device: torch.device, per_row: bool = False) -> Noise | None:
        """Returns a buffer for the random numbers of one pass, or None if the network needs none.

        Args:
            rows: number N of observations.
            uniform: number of uniform numbers in [0, 1) for each row.
            device: device of the buffer.
            per_row: if True, factorised noise is drawn for each row instead of once for all.
        """
        if not self.noise_width and not uniform:
            return None
        rows *= 1 if self.config.ensemble is None else self.config.ensemble.members
        factorised = self.config.noisy is None or self.config.noisy.kind == "factorised"
        draws = rows if per_row and factorised else 1
        return Noise.zeros((draws, self.noise_width), (rows, uniform), device, factorised)

    def learning_noise(self, rows: int, as_target: bool) -> Noise | None:
        """Returns a buffer for the random numbers of one learning pass over `rows`, as online or as target network."""
        distribution = self.config.distribution
        uniform = distribution.num_target if as_target else distribution.num_online
        return self.make_noise(rows, uniform, next(self.parameters()).device)

    def twin(self, dtype: torch.dtype) -> QNetwork:
        """Returns a copy whose layers compute in `dtype`, except for shared float32 ones.

        The head is shared: near -1 bfloat16 has steps of 1/256, as large as the differences between actions early in
        training. So is everything from the recurrent layer on: errors of the state would add up along a sequence.
        """
        twin = copy.deepcopy(self).to(dtype)
        twin.features.dtype = dtype
        recurrent = self.recurrent_layer is not None
        for name in ("recurrent_layer", "torso", "embedding", "last", "head") if recurrent else ("head", "prior"):
            setattr(twin, name, getattr(self, name))
        return twin
