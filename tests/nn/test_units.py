"""Hidden units of networks: which weights make and read them, in orders that a wrong reading would confuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sb_dqn.nn.units import Units, find_units, unit_scores


def found(network: nn.Module, *shape: int) -> dict[str, Units]:
    x = torch.rand(2, *shape)
    return {units.activation: units for units in find_units(network, lambda: network(x))}


def readers(units: Units) -> dict[str, list[int]]:
    return {name: owners.tolist() for name, owners in units.readers.items()}


def test_scores_are_shares_of_the_layers_mean() -> None:
    h = torch.tensor([[8.0, 0.0, -1.0], [0.0, 0.0, 3.0]])  # sizes 4, 0, 2: mean 2
    torch.testing.assert_close(unit_scores(h), torch.tensor([2.0, 0.0, 1.0]))
    assert unit_scores(torch.zeros(5, 3)).tolist() == [0.0] * 3, "a dead layer is not NaN"
    images = torch.zeros(2, 3, 2, 2)
    images[0, 1, 1, 0] = 8.0  # sizes 0, 1, 0: mean 1/3
    torch.testing.assert_close(unit_scores(images), torch.tensor([0.0, 3.0, 0.0]))


def test_a_flattened_image_repeats_each_channel() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 4, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 2)
    )  # fmt: skip
    units = found(net, 1, 6, 6)
    assert units.keys() == {"2", "6"}, "the last layer makes no units"
    assert (units["2"].layer, units["2"].norm) == ("0", None)
    assert readers(units["2"]) == {"4": [0] * 4 + [1] * 4 + [2] * 4}
    assert (units["6"].layer, units["6"].norm) == ("4", "5")
    assert readers(units["6"]) == {"7": [0, 1, 2, 3, 4]}


class Net(nn.Module):
    """Two layers of 4 units and a last one, joined by a function."""

    def __init__(self, join: Callable[[Net, Tensor], Tensor], width: int = 4) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(width, 2)
        self.act, self.other = nn.ReLU(), nn.ReLU()
        self.memory = nn.GRU(4, 4)
        self.norm = nn.LayerNorm(4)
        self.join = join

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.join(self, x))
        return out


def test_inputs_beside_the_units_are_none_of_them() -> None:
    units = found(Net(lambda net, x: torch.cat([x[:, :2], net.act(net.first(x))], -1), 6), 4)
    assert readers(units["act"]) == {"last": [-1, -1, 0, 1, 2, 3]}


def test_permuted_units_and_factors_are_found() -> None:
    units = found(Net(lambda net, x: net.act(net.first(x)).flip(-1) * net.other(net.second(x))), 4)
    assert readers(units["act"]) == {"last": [3, 2, 1, 0]}
    assert readers(units["other"]) == {"last": [0, 1, 2, 3]}


def test_a_norm_behind_the_activation_is_transparent() -> None:
    units = found(Net(lambda net, x: net.norm(net.act(net.first(x)))), 4)
    assert units["act"].norm is None
    assert readers(units["act"]) == {"last": [0, 1, 2, 3]}


@pytest.mark.parametrize(
    "join",
    [
        lambda net, x: net.act(net.second(net.act(net.first(x)))),  # one module after two layers
        lambda net, x: net.act(net.first(x) + net.second(x)),
        lambda net, x: net.act(net.first(x)) + net.other(net.second(x)),
        lambda net, x: net.act(net.first(x)).cumsum(-1),
        lambda net, x: net.memory(net.act(net.first(x)))[0],
        lambda net, x: net.act(net.first(x)).mean(-1, keepdim=True).expand(-1, 4),
        lambda net, x: torch.sigmoid(net.second(x)) * net.act(net.first(x)),
    ],
    ids=["shared module", "sum of layers", "sum of units", "mixed", "recurrent", "mean", "gate"],
)
def test_units_without_weights_of_their_own_are_left_out(join: Callable[[Net, Tensor], Tensor]) -> None:
    assert found(Net(join), 4) == {}


def test_the_network_is_as_before() -> None:
    net = Net(lambda net, x: net.act(net.first(x)))
    x = torch.rand(3, 4)
    before = net(x)
    found(net, 4)
    assert torch.equal(net(x), before)
