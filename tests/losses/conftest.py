from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_eager_fallback(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Fails a test in which tracing or compiling fell back to eager mode (with a message), since it would prove nothing."""
    yield
    assert "running without it" not in capsys.readouterr().err
