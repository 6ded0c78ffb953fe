"""The two ways in which a ring is stored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sb_dqn import devices


@pytest.fixture(params=["host", "device"], scope="module")
def storage(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a module with rings that the CPU can address, then with the code that other devices run."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "device":
            patch.setattr(devices, "HOST_DEVICES", ())
        yield request.param


@pytest.fixture(autouse=True)
def host_by_default(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs tests without `storage` on the host, also after one of their module that has it: processes take tests in any order."""
    if "storage" not in request.fixturenames:
        monkeypatch.setattr(devices, "HOST_DEVICES", ("cpu",))
