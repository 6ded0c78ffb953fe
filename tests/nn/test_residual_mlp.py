"""SimBa and multi-skip networks: worked numbers, parameter counts, initial weights, gradients, and what they refuse."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.algorithms import PPO, R2D2, SAC
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import MultiSkipMLP, SimBa
from sb_dqn.nn.layers.linear import NoisyLinear
from sb_dqn.nn.parameters.flat import flatten_parameters
from sb_dqn.nn.torsos.features import EXTRACTORS
from tests.marks import SLOW
from tests.tiny import OBSERVATIONS, Tiny, quick

CLASSES: list[Any] = [SimBa, MultiSkipMLP]
NUMBER = spaces.Box(-1, 1, (1,), np.float32)
VECTOR = spaces.Box(-1, 1, (4,), np.float32)
TO_ONE_TWO_SIX = torch.tensor([[1.0], [2.0], [6.0]])
"""Weights of a first layer; 1, 2, 6 have mean 3 and variance 14/3."""


def made(extractor: Any, space: spaces.Space[Any] = VECTOR, **kwargs: Any) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return extractor(space, **kwargs)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@torch.no_grad()
def small_simba() -> Any:
    """Three features from one number, and one block: its unit 0 reads the last feature, its unit 1 the first."""
    net = made(SimBa, NUMBER, features_dim=3, n_blocks=1)
    net.stem.weight.copy_(TO_ONE_TWO_SIX)
    (block,) = net.blocks
    block.up.weight.zero_()
    block.down.weight.zero_()
    block.up.weight[0, 2] = block.up.weight[1, 0] = 1.0
    return net


@torch.no_grad()
def test_a_simba_block_normalizes_before_its_layers_and_adds_its_input() -> None:
    """LN(1, 2, 6) = (-2, -1, 3) / s. Unit 0 is 3 / s and adds s * 3 / s to the first feature; unit 1 is below 0 and adds nothing."""
    net, s = small_simba(), math.sqrt(14 / 3 + 1e-6)
    (block,) = net.blocks
    block.down.weight[0, 0], block.down.weight[1, 1] = s, 100.0
    x = net.stem(torch.ones(1, 1))
    torch.testing.assert_close(block(x), torch.tensor([[4.0, 2.0, 6.0]]))
    expected = torch.tensor([[0.0, -2.0, 2.0]]) / math.sqrt(8 / 3 + 1e-6)  # the last norm; 4, 2, 6 have variance 8/3
    torch.testing.assert_close(net(torch.ones(1, 1)), expected)
    assert block.down(torch.relu(block.up(x)))[0, 0] > 12.0  # the decoy: without the norm, 6 s


@torch.no_grad()
def test_simbas_norms_have_the_epsilon_of_flax() -> None:
    """Features of 0.001, 0.002 and 0.006 have a variance of 4.67e-6, near both epsilons."""
    net = small_simba()
    net.stem.weight.mul_(1e-3)
    expected = torch.tensor([[-2.0, -1.0, 3.0]]) * 1e-3 / math.sqrt(14e-6 / 3 + 1e-6)
    torch.testing.assert_close(net(torch.ones(1, 1)), expected)
    assert {part.eps for part in made(SimBa).modules() if isinstance(part, nn.LayerNorm)} == {1e-6}
    assert {part.eps for part in made(MultiSkipMLP).modules() if isinstance(part, nn.LayerNorm)} == {1e-5}


@torch.no_grad()
def test_every_multi_skip_block_adds_the_first_layer_again() -> None:
    """g = (-2, -1, 3); each block computes (2, -1, -1) from the last feature: x1 = g + (2, -1, -1) + g, x2 = x1 + (2, -1, -1) + g."""
    net = made(MultiSkipMLP, NUMBER, features_dim=3, n_blocks=2)
    linear, norm = net.stem
    linear.weight.copy_(TO_ONE_TWO_SIX)
    norm.weight.fill_(math.sqrt(14 / 3 + 1e-5))
    for block in net.blocks:
        (first, first_norm), (second, second_norm) = block.first, block.second
        first.weight.copy_(
            torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 2.0]])
        )  # relu(x) has 0 in place of -2
        first_norm.weight.fill_(math.sqrt(6.0))  # (0, 3, 6) becomes (-3, 0, 3)
        second.weight.copy_(torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
        second_norm.weight.fill_(math.sqrt(2.0))  # (3, 0, 0) becomes (2, -1, -1)
    g = net.stem(torch.ones(1, 1))
    torch.testing.assert_close(g, torch.tensor([[-2.0, -1.0, 3.0]]))
    torch.testing.assert_close(net.blocks[0](g, g), torch.tensor([[-2.0, -3.0, 5.0]]), atol=1e-4, rtol=0.0)
    found = net(torch.ones(1, 1))
    torch.testing.assert_close(found, torch.tensor([[-2.0, -5.0, 7.0]]), atol=1e-4, rtol=0.0)
    for decoy in ([2.0, -3.0, 1.0], [0.0, -4.0, 4.0]):  # plain residual blocks; g added once, at the end
        assert not torch.allclose(found, torch.tensor([decoy]), atol=0.5)


def test_numbers_of_parameters() -> None:
    h = 512
    block = 2 * h + h * 4 * h + 4 * h + 4 * h * h + h
    assert count(made(SimBa)) == (4 * h + h) + 2 * block + 2 * h == 4_205_056
    assert count(made(SimBa, features_dim=128, n_blocks=1)) == 640 + (256 + 65_536 + 512 + 65_536 + 128) + 256
    assert count(made(MultiSkipMLP)) == (4 * h + h + 2 * h) + 3 * 2 * (h * h + h + 2 * h)
    assert count(made(MultiSkipMLP, features_dim=8, n_blocks=5)) == 56 + 5 * 2 * 88


def test_initial_weights() -> None:
    simba, skips = made(SimBa, features_dim=256), made(MultiSkipMLP, features_dim=64, n_blocks=1)
    torch.testing.assert_close(simba.stem.weight.T @ simba.stem.weight, torch.eye(4), atol=1e-5, rtol=0.0)
    for block in simba.blocks:
        assert block.up.weight.std().item() == pytest.approx(math.sqrt(2 / 256), rel=0.02)
        assert block.down.weight.std().item() == pytest.approx(math.sqrt(2 / 1_024), rel=0.02)
    weight = skips.blocks[0].first[0].weight
    torch.testing.assert_close(weight.T @ weight, 2.0 * torch.eye(64), atol=1e-4, rtol=0.0)
    for net in (simba, skips):
        assert all(not part.bias.any() for part in net.modules() if isinstance(part, nn.Linear))


@pytest.mark.parametrize("extractor", CLASSES)
def test_every_parameter_gets_a_gradient_and_a_loaded_net_is_the_same(extractor: Any) -> None:
    net = made(extractor, features_dim=16, n_blocks=3)
    flatten_parameters(list(net.parameters()))
    out = net(numbers(32, 4))
    assert out.shape == (32, net.features_dim) == (32, 16)
    towards = numbers(32, 16)
    gradients = torch.autograd.grad((out * towards).sum(), list(net.parameters()))
    assert all(torch.isfinite(gradient).all() and gradient.abs().max() > 1e-3 for gradient in gradients)
    other = extractor(VECTOR, features_dim=16, n_blocks=3)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(numbers(32, 4)), out)
    assert list(net.buffers()) == []


@pytest.mark.parametrize("extractor", CLASSES)
def test_a_bfloat16_twin_answers_nearly_the_same(extractor: Any) -> None:
    net = made(extractor, features_dim=16)
    twin = copy.deepcopy(net).to(torch.bfloat16)
    expected, found = net(numbers(8, 4)), twin(numbers(8, 4).bfloat16())
    assert found.dtype == torch.bfloat16
    assert (found.float() - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.parametrize("extractor", CLASSES)
def test_keys_of_a_dict_are_concatenated(extractor: Any) -> None:
    space = spaces.Dict({"goal": spaces.Box(-1, 1, (2, 2), np.float32), "place": VECTOR})
    net = made(extractor, space, features_dim=8)
    plain = made(extractor, spaces.Box(-1, 1, (8,), np.float32), features_dim=8)
    parts = {"place": numbers(3, 4), "goal": numbers(3, 2, 2)}
    expected = plain(torch.cat([parts["goal"].flatten(1), parts["place"]], -1))
    assert torch.equal(net(parts), expected)


@pytest.mark.parametrize("extractor", CLASSES)
def test_what_is_refused(extractor: Any) -> None:
    image = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    with pytest.raises(ConfigurationError, match=rf"no image for {extractor.__name__}, got images \['camera'\]. Use"):
        extractor(spaces.Dict({"camera": image, "place": VECTOR}))
    for kwargs, message in (
        ({"features_dim": 0}, "features_dim must be an integer >= 1, got 0"),
        ({"n_blocks": 0}, "n_blocks must be an integer >= 1, got 0"),
        ({"n_blocks": 1.5}, "n_blocks must be an integer >= 1.* got 1.5"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            extractor(VECTOR, **kwargs)
    assert extractor(VECTOR, features_dim=8.0, n_blocks=1.0).features_dim == 8
    given = {"features_extractor_class": extractor, "features_extractor_kwargs": {"n_block": 1}}
    with pytest.raises(
        ConfigurationError, match=rf"must be arguments of {extractor.__name__}, among .*Did you mean 'n_blocks'"
    ):
        quick(policy_kwargs=given)


@pytest.mark.parametrize("extractor", CLASSES)
@pytest.mark.parametrize("kind", sorted(OBSERVATIONS.keys() - {"dict with image", "image", "hwc"}))
@pytest.mark.usefixtures("eagerly")
def test_every_kind_of_observation_but_images(extractor: Any, kind: str) -> None:
    model = quick(
        Tiny(kind),
        "MultiInputPolicy" if kind == "dict" else "MlpPolicy",
        policy_kwargs=named(extractor),
        dueling=True,
        noisy=True,
    )
    model.learn(30)
    assert any(isinstance(part, extractor) for part in model.policy.modules())
    assert not any(isinstance(part, NoisyLinear) for part in model.policy.q_net.features.modules())


def named(extractor: Any, **policy_kwargs: Any) -> dict[str, Any]:
    return {
        "features_extractor_class": extractor.__name__,
        "features_extractor_kwargs": {"features_dim": 8, "n_blocks": 2},
        "net_arch": [],
        **policy_kwargs,
    }


@pytest.mark.parametrize("extractor", CLASSES)
def test_head_and_streams_read_the_features_directly_without_further_layers(extractor: Any) -> None:
    assert EXTRACTORS[extractor.__name__] is extractor
    net = quick(policy_kwargs=named(extractor), dueling=True).policy.q_net
    others = count(net) - count(net.features)
    assert others == (8 + 1) * 1 + (8 + 1) * 3  # value and advantages


@SLOW
@pytest.mark.parametrize("extractor", CLASSES)
@pytest.mark.parametrize("algorithm", [R2D2, PPO, SAC])
@pytest.mark.usefixtures("eagerly")
def test_other_policies_have_them_and_load_them_without_trust(extractor: Any, algorithm: Any, tmp_path: Any) -> None:
    kwargs = named(extractor) if algorithm is not R2D2 else named(extractor, lstm_hidden_size=6, net_arch=[8])
    model = quick(algorithm=algorithm, policy_kwargs=kwargs, **({"n_steps": 20} if algorithm is PPO else {}))
    before = model.learner.flat.clone()
    model.learn(80)
    changed = model.learner.flat != before
    assert changed.float().mean() > 0.5
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model")
    observation = np.array([[0.1, -0.2]], np.float32)
    assert loaded.predict(observation)[0].tolist() == model.predict(observation)[0].tolist()
    assert torch.equal(loaded.learner.flat, model.learner.flat)


def test_ppo_keeps_the_initial_weights_of_an_extractor_without_ortho_init() -> None:
    model = quick(algorithm=PPO, policy_kwargs=named(SimBa, ortho_init=False))
    (net,) = (part for part in model.policy.modules() if isinstance(part, SimBa))
    weight: Any = net.stem.weight
    torch.testing.assert_close(weight.T @ weight, torch.eye(2), atol=1e-5, rtol=0.0)
