"""Values, heads, stacks of layers, and the extractors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from sb_dqn.nn.heads.scalar import ILLEGAL, Outputs, ScalarHead, ScalarValue
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.torsos.mlp import DuelingStreams, HiddenLayers
from tests.modes import Variant


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


@pytest.mark.parametrize("leading", [(), (4,), (2, 3)])
def test_the_value_of_an_action_for_any_leading_axes(leading: tuple[int, ...]) -> None:
    q = torch.arange(int(np.prod(leading)) * 5, dtype=torch.float32).reshape(*leading, 5)
    action = (torch.arange(int(np.prod(leading))) % 5).reshape(leading)
    found = ScalarValue(q).of(action)
    assert found.shape == leading
    expected = [row[a] for row, a in zip(q.reshape(-1, 5).tolist(), action.flatten().tolist(), strict=True)]
    assert found.flatten().tolist() == expected


def make_outputs(depth: int, branches: tuple[int, ...] = (4,), **kwargs: Any) -> Outputs:
    return Outputs(Linear, 6, depth, branches, **kwargs)


def test_a_head_answers_in_float32_whatever_it_reads() -> None:
    value = ScalarHead(make_outputs(1))(torch.randn(3, 6).to(torch.bfloat16))
    assert value.q.shape == (3, 4)
    assert value.q.dtype == torch.float32


def test_a_stack_of_layers() -> None:
    stack = HiddenLayers(3, [7, 5], nn.Tanh)
    assert [type(layer) for layer in stack.linears] == [Linear, Linear]
    x = torch.randn(2, 3)
    plain = nn.Sequential(stack.linears[0], nn.Tanh(), stack.linears[1], nn.Tanh())
    assert torch.equal(stack(x), plain(x))
    assert stack.out_features == 5


def test_layer_norm_lies_before_the_activation() -> None:
    stack = HiddenLayers(3, [7], nn.ReLU, layer_norm=True)
    x = torch.randn(2, 3)
    assert torch.equal(stack(x), nn.functional.layer_norm(stack.linears[0](x), (7,)).relu())


def test_an_empty_stack_passes_its_input_through() -> None:
    x = torch.randn(2, 3)
    assert HiddenLayers(3, [])(x) is x


def by_hand(outputs: Outputs, value: Tensor, advantage: Tensor) -> Tensor:
    """Answers of dueling outputs whose two layers pass on what they are told."""
    outputs.of_state = Told(value)
    outputs.of_actions = Told(advantage)
    return outputs(torch.zeros(1, 12))


class Told(nn.Module):
    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer.reshape(1, -1)

    def forward(self, x: Tensor, noise: Any = None) -> Tensor:
        return self.answer


V, A = torch.tensor([1.5]), torch.tensor([1.0, 2.0, 3.0])


def dueling(value: Tensor, advantage: Tensor) -> Tensor:
    return by_hand(make_outputs(len(value), (3,), dueling=True), value, advantage)[0]


def test_dueling_by_worked_numbers(variant: Variant) -> None:
    run = variant(dueling, (V, A))
    assert run(V, A).flatten().tolist() == [0.5, 1.5, 2.5]  # decoy: the form with the maximum gives -0.5, 0.5, 1.5
    assert torch.equal(run(V, A + 7), run(V, A))


def test_dueling_of_a_distribution_by_worked_numbers(variant: Variant) -> None:
    arguments = torch.tensor([0.1, 0.2]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [2.0, 1.0]])
    logits = variant(dueling, arguments)(*arguments)
    assert torch.allclose(logits, torch.tensor([[0.1, -0.8], [-0.9, 1.2], [1.1, 0.2]]))
    assert torch.allclose(logits.softmax(-1)[0], torch.tensor([0.7109495026, 0.2890504974]))
    assert torch.allclose(logits.softmax(-1)[1], torch.tensor([0.1090968212, 0.8909031788]))


def test_the_gradient_of_dueling(variant: Variant) -> None:
    def gradient(value: Tensor, advantage: Tensor) -> Tensor:
        leaf = advantage.detach().requires_grad_()
        return torch.autograd.grad(dueling(value, leaf)[1, 0], leaf)[0]

    assert torch.allclose(variant(gradient, (V, A))(V, A), torch.tensor([-1 / 3, 2 / 3, -1 / 3]))


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 2.0), (2**-0.5, 2.0 * 0.7071067812)])
def test_the_gradient_into_the_trunk(scale: float, expected: float, variant: Variant) -> None:
    streams = DuelingStreams(HiddenLayers(2, []), HiddenLayers(2, []), scale)

    def gradient(x: Tensor) -> Tensor:
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(streams(leaf).sum(), leaf)[0]

    x = torch.ones(1, 2)
    assert torch.allclose(variant(gradient, (x,))(x), torch.full((1, 2), expected))


def test_uneven_branches_share_their_mean_among_what_exists() -> None:
    outputs = make_outputs(1, (2, 3), branched=True, dueling=True)
    q = by_hand(outputs, torch.tensor([1.0]), torch.tensor([[1.0, 3.0, 99.0], [1.0, 2.0, 3.0]]))
    assert q[0, :, :, 0].tolist() == [[0.0, 2.0, 98.0], [0.0, 1.0, 2.0]]
    legal = torch.tensor([[True, True, False], [True, True, True]])
    head = ScalarHead(outputs, legal)
    assert head(torch.zeros(1, 12)).q[0].tolist() == [[0.0, 2.0, ILLEGAL], [0.0, 1.0, 2.0]]
    mask = torch.tensor([[[False, True, True], [True, True, False]]])
    assert head(torch.zeros(1, 12), mask).q[0].tolist() == [[ILLEGAL, 2.0, ILLEGAL], [0.0, 1.0, ILLEGAL]]


def test_the_nature_cnn() -> None:
    cnn = NatureCNN(image(4, 84, 84))
    assert cnn.features_dim == 512
    assert cnn(torch.zeros(2, 4, 84, 84)).shape == (2, 512)
    # 4*32*64+32, 32*64*16+64, 64*64*9+64, 3136*512+512 (Mnih et al. 2015, without the head)
    assert sum(parameter.numel() for parameter in cnn.parameters()) == 8_224 + 32_832 + 36_928 + 1_606_144


def test_a_cnn_of_other_sizes() -> None:
    cnn = NatureCNN(image(1, 10, 12), 16, channels=(4,), kernels=(3,), strides=(2,))
    assert cnn(torch.zeros(3, 1, 10, 12)).shape == (3, 16)


@pytest.mark.parametrize(
    ("space", "kwargs", "message"),
    [
        (image(3, 20, 20), {}, "images must be .* or larger for kernels"),
        (image(3, 36, 36), {"channels": (8, 8)}, "must have the same length"),
        (spaces.Box(0, 1, (3, 36, 36), np.float32), {}, "must be an image"),
        (spaces.Box(-1, 1, (4,), np.float32), {}, "'MlpPolicy' for vectors"),
        (image(3, 36, 36), {"features_dim": 0}, "features_dim must be .* got 0"),
    ],
)
def test_what_a_cnn_refuses(space: spaces.Box, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        NatureCNN(space, **kwargs)


def test_36_by_36_is_large_enough() -> None:
    assert NatureCNN(image(1, 36, 36))(torch.zeros(1, 1, 36, 36)).shape == (1, 512)


def test_flattening() -> None:
    extractor = FlattenExtractor(spaces.Box(-1, 1, (2, 3), np.float32))
    assert extractor.features_dim == 6
    assert extractor(torch.arange(12.0).reshape(2, 2, 3)).tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_the_parts_of_a_dict_lie_side_by_side() -> None:
    space = spaces.Dict({"b": spaces.Box(-1, 1, (3,), np.float32), "cam/top.left": image(1, 36, 36)})
    extractor = CombinedExtractor(space, cnn_output_dim=8)
    assert extractor.features_dim == 3 + 8
    b = torch.tensor([[1.0, 2.0, 3.0]])
    found = extractor({"cam/top.left": torch.zeros(1, 1, 36, 36), "b": b})
    assert found.shape == (1, 11)
    assert found[:, :3].tolist() == b.tolist()


def test_an_extractor_of_ones_own_must_say_its_width() -> None:
    class Silent(BaseFeaturesExtractor):
        def __init__(self, observation_space: spaces.Space[Any]) -> None:
            super().__init__(observation_space)

    with pytest.raises(ConfigurationError, match="features_dim must be an integer from 1, got 0"):
        Silent(image(1, 36, 36))


def test_what_is_illegal_is_below_any_value() -> None:
    head = ScalarHead(make_outputs(1))
    q = head(torch.zeros(1, 6), torch.tensor([[False, True, True, True]])).q
    assert (q[0, 0] / 1e-6).isfinite()  # a temperature of Munchausen
    assert q[0, 0] < -1e20  # of C51's returns, the least
