"""Augmentation of images by random shifts and intensities (Yarats et al. 2021, arXiv 2004.13649)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.types import Batch

BOUND = 2.0
"""Bound of the normal number of an intensity, in standard deviations."""


@dataclass(frozen=True)
class Augmentation:
    r"""Settings of random changes of the images of each batch, which keep an agent that makes many updates on few frames from
    fitting single pixels.

    Each image is moved by up to `shift` pixels in each direction, its border repeated where it left (pad and crop), and
    multiplied by

    .. math:: 1 + \sigma \, \mathrm{clip}(\epsilon, -2, 2), \qquad \epsilon \sim N(0, 1)

    Frames of a stack move together; observations, next observations and their keys each have draws of their own. Acting sees
    the images as they are.

    Args:
        shift: largest shift in pixels, from 0; 4 in DrQ, for 84 x 84 pixels.
        intensity: :math:`\sigma`, from 0; 0.05 in SPR.

    Raises:
        ConfigurationError: a value is out of range, or both are 0.
    """

    shift: int = 4
    intensity: float = 0.05

    def __post_init__(self) -> None:
        set_fields(
            self,
            shift=check_int("augmentation['shift']", self.shift, 0),
            intensity=check_float("augmentation['intensity']", self.intensity, 0.0),
        )
        if not self.shift and not self.intensity:
            raise ConfigurationError(
                "augmentation must have a shift or an intensity above 0, got 0 for both. Give augmentation=False for none."
            )


class ImageAugmentation:
    """Changes the images of batches by numbers that are drawn before each update, so that traces read new ones.

    Args:
        settings: how much.
        network: its features extractor says which observations are images.
        rows: observations of a batch, next ones included.
        device: of the batches.

    Raises:
        ConfigurationError: the network reads no images.
    """

    def __init__(self, settings: Augmentation, network: nn.Module, rows: int, device: torch.device) -> None:
        features = next(part for part in network.modules() if isinstance(part, Features))
        self.settings = settings
        self.hwc = {key: image.hwc for key, image in features.preprocess.images.items()}
        if not self.hwc:
            raise ConfigurationError(
                f"augmentation must be False without images among the observations, got {settings}. Remove it."
            )
        count = len(self.hwc)
        self.offsets = torch.zeros((count, rows, 2), dtype=torch.int64, device=device)
        """`[keys, rows, 2]`, row and column at which each padded image is cropped."""
        self.normal = torch.zeros((count, rows), device=device)
        """`[keys, rows]`, normal numbers of the intensities."""

    def draw(self, generator: torch.Generator) -> None:
        """Draws the numbers of the next update."""
        if self.settings.shift:
            self.offsets.random_(0, 2 * self.settings.shift + 1, generator=generator)
        if self.settings.intensity:
            self.normal.normal_(generator=generator)

    def __call__(self, batch: Batch) -> Batch:
        """Returns a batch with changed images; tensor operations only."""
        parts = [batch.obs, batch.next_obs, batch.future or {}]
        sizes = [len(next(iter(part.values()), ())) for part in parts]
        starts = (0, sizes[0], sizes[0] + sizes[1])
        obs, next_obs, future = (self._changed(part, start) for part, start in zip(parts, starts, strict=True))
        return batch._replace(obs=obs, next_obs=next_obs, future=future or None)

    def _changed(self, obs: Mapping[str, Tensor], start: int) -> dict[str, Tensor]:
        changed = dict(obs)
        for number, (key, hwc) in enumerate(self.hwc.items()):
            if key in changed:
                x = changed[key]
                part = slice(start, start + len(x))
                if self.settings.shift:
                    x = shift_images(x, self.offsets[number, part], self.settings.shift, hwc)
                if self.settings.intensity:
                    factor = 1.0 + self.settings.intensity * self.normal[number, part].clamp(-BOUND, BOUND)
                    x = x.to(torch.float32, copy=True).mul_(factor.view(-1, 1, 1, 1))  # uint8 * float is slower
                changed[key] = x
        return changed


def shift_images(x: Tensor, offsets: Tensor, pad: int, hwc: bool = False) -> Tensor:
    """Returns images that are padded by repeating their borders, then cropped to their size.

    Args:
        x: `[N, C, H, W]`, or `[N, H, W, C]` if `hwc`.
        offsets: `[N, 2]` int64, first row and column of each crop, [0, 2 pad]; `pad` leaves an image where it is.
        pad: pixels on each side.
        hwc: channels are the last axis.
    """
    pixels = x if hwc else x.permute(0, 2, 3, 1)
    count, height, width, depth = pixels.shape
    down, right = offsets.unsqueeze(-1).unbind(1)  # [N, 1]
    image = torch.arange(count, device=x.device).view(-1, 1)
    rows = (torch.arange(height, device=x.device) + down - pad).clamp(0, height - 1)
    sides = [pixels[:, :, edge : edge + 1].expand(-1, -1, pad, -1) for edge in (0, width - 1)]
    padded = torch.cat([sides[0], pixels, sides[1]], 2).reshape(count, height, -1)
    # each row of a crop is one span of numbers, which is copied at once
    spans = padded.unfold(2, width * depth, depth)  # [N, H, 2 pad + 1, W C], a view
    moved = spans[image, rows, right].view(pixels.shape)
    return moved if hwc else moved.permute(0, 3, 1, 2)
