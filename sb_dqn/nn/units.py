"""Hidden units of a network: how active they are, which weights make them, and which weights read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sb_dqn.nn.layers.linear import NoisyLinear

DORMANT = 0.025
"""Score at which a unit counts as dormant (Sokar et al. 2023)."""
ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardtanh
)  # fmt: skip
LAYERS = (nn.Linear, NoisyLinear, nn.Conv2d)
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)
CLOSE = 0.01
"""Largest rounding error of a label, which is an integer."""


def unit_scores(activations: Tensor) -> Tensor:
    r"""Returns the score of each unit `[H]`, :math:`s_i = E|h_i| / (\mathrm{mean}_j E|h_j| + 10^{-9})`, which is zero in a
    dead layer.

    Args:
        activations: `[N, ..., H]`, or of a convolution `[N, C, H, W]`, whose units are the channels.
    """
    size = _rows_of_units(activations).abs().mean(0)
    return size / (size.mean() + 1e-9)


def dormant_share(activations: Tensor) -> float:
    """Returns the share of dormant units, those with a score of at most `DORMANT`; see `unit_scores`."""
    return float((unit_scores(activations) <= DORMANT).float().mean())


def _rows_of_units(x: Tensor) -> Tensor:
    """Returns `[N, ..., H]` or images `[N, C, H, W]` as rows `[M, H]` or `[M, C]`."""
    return (x.movedim(1, -1) if x.dim() == 4 else x).flatten(0, -2)


@contextmanager
def watched(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Returns a context that holds the latest output of each activation by name, in the order of their first calls."""
    outputs: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, __: object, output: Tensor) -> None:
        outputs[name] = output.detach()

    with _hooked(network, ACTIVATIONS, keep):
        yield outputs


@contextmanager
def _hooked(
    network: nn.Module, kinds: tuple[type[nn.Module], ...], hook: Callable[..., Tensor | None]
) -> Iterator[None]:
    """Returns a context in which `hook(name, module, inputs, output)` follows each call of a module of these kinds."""
    hooks = [
        part.register_forward_hook(partial(hook, name))
        for name, part in network.named_modules()
        if isinstance(part, kinds)
    ]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


class Units(NamedTuple):
    """Units of one hidden layer, and the modules with their weights, by name."""

    activation: str
    layer: str
    """Name of the module whose rows make the units."""
    norm: str | None
    """Name of the norm between layer and activation."""
    readers: Mapping[str, Tensor]
    """By name of a layer, the number of the unit that each of its inputs `[I]` reads, or -1 for something else. Of a flattened
    image each unit has one input per pixel."""


def find_units(network: nn.Module, run: Callable[[], object]) -> list[Units]:
    """Returns the hidden units of a network with known weights on both sides, for any order of layers.

    One layer or activation after the other gives labels instead of its outputs: 1 to H, and in a second run H + 1 to 2 H.
    All other layers and activations give ones, and norms their inputs. What arrives elsewhere with both labels is that unit,
    also as a factor; what differs in another way is a mixture. Left out are units of sums (residual streams), and those that a
    mixture reads (recurrent layers, attention, state-dependent noise).

    Args:
        network: its modules get hooks, so that it must not be used elsewhere at the same time.
        run: calls all parts of the network on a few observations, the same ones each time.
    """
    layers = [name for name, part in network.named_modules() if _is_layer(part)]
    made = {name: _arrivals(network, name, run) for name in layers}
    found = []
    for activation, part in network.named_modules():
        sources = [name for name in layers if activation in made[name]]
        if not isinstance(part, ACTIVATIONS) or len(sources) != 1:
            continue
        owners = made[sources[0]][activation]
        if owners is None or owners.tolist() != list(range(len(owners))):
            continue
        arrived = _arrivals(network, activation, run)
        readers = {name: arrived[name] for name in layers if name in arrived}
        norms = [name for name in made[sources[0]] if isinstance(network.get_submodule(name), NORMS)]
        known = {name: owners for name, owners in readers.items() if owners is not None}
        if known and len(known) == len(readers) and len(norms) < 2:
            found.append(Units(activation, sources[0], norms[0] if norms else None, known))
    return found


def _is_layer(part: nn.Module) -> bool:
    return isinstance(part, LAYERS) and getattr(part, "groups", 1) == 1


@torch.no_grad()
def _arrivals(network: nn.Module, source: str, run: Callable[[], object]) -> dict[str, Tensor | None]:
    """Returns, by the name of a module that outputs of `source` reach, the number of the output at each of its inputs, -1 for
    those that none reaches, and None for a module that a mixture of them reaches."""
    first, width = _labeled(network, source, run, 0)
    second, _ = _labeled(network, source, run, width)
    found: dict[str, Tensor | None] = {}
    for name, low in first.items():
        high, unit = second[name], low.round() - 1.0
        labeled = ((low - low.round()).abs() < CLOSE) & ((high - low - width).abs() < CLOSE)
        labeled &= (unit >= 0) & (unit < width)
        if not bool((labeled | (high == low)).all()):
            found[name] = None
        elif bool(labeled.any()):
            found[name] = torch.where(labeled, unit, -1.0).long()
    return found


def _labeled(network: nn.Module, source: str, run: Callable[[], object], start: int) -> tuple[dict[str, Tensor], int]:
    """Runs with labels from `start` + 1 as the outputs of `source`. Returns the largest value at each input of each module over
    all calls, and the number of labels."""
    seen: dict[str, Tensor] = {}
    width = 0

    def hook(name: str, part: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        nonlocal width
        if isinstance(part, LAYERS) and not _is_layer(part):
            return None
        if name != source:  # what a module returns to itself is no connection
            largest = _rows_of_units(inputs[0].detach()).amax(0)
            if name in seen and seen[name].shape != largest.shape:  # one activation after layers of several widths
                largest = torch.full_like(largest, torch.nan)
            elif name in seen:
                largest = torch.maximum(largest, seen[name])
            seen[name] = largest
        if isinstance(part, NORMS):
            return inputs[0]
        if name != source:
            return torch.ones_like(output)
        width = output.shape[1 if output.dim() == 4 else -1]
        labels = torch.arange(start + 1.0, start + width + 1.0, device=output.device)
        return (labels.view(-1, 1, 1) if output.dim() == 4 else labels).expand_as(output).to(output.dtype)

    with _hooked(network, (*LAYERS, *ACTIVATIONS, *NORMS), hook), torch.enable_grad():
        run()
    return seen, width
