from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_fell_back(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """What can be neither recorded nor compiled is run eagerly, with a line that says so: then a test would prove nothing."""
    yield
    assert "running without it" not in capsys.readouterr().err
