"""What a constructor asks of the environment."""

from __future__ import annotations

import pytest
from gymnasium import spaces

from sb_dqn.core.construction import open_environment
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import Blueprint
from tests.masked_toys import MaskedGame


def test_action_masks_reach_the_stream() -> None:
    blueprint, stream = open_environment(MaskedGame(), action_mask="info")
    assert stream is not None
    assert stream.has_masks
    assert stream.options.action_mask == "info"
    assert blueprint is stream.blueprint
    assert open_environment(stream) == (blueprint, stream)
    with pytest.raises(ConfigurationError, match="got action_mask='legal'. Pass"):
        open_environment(stream, "legal")
    with pytest.raises(ConfigurationError, match="action_mask must be None, 'info' .*got 'legal'"):
        open_environment(MaskedGame(), "legal")


def test_a_blueprint_has_no_stream() -> None:
    blueprint = Blueprint(spaces.Discrete(2), spaces.Discrete(2))
    assert open_environment(blueprint, "info") == (blueprint, None)
