"""A full disk for tests: files that cannot grow beyond a size."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="limits of files are POSIX")


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Lets the operating system refuse to write beyond `size` bytes of any file, as a full disk does (`OSError`)."""
    if sys.platform == "win32":
        raise NotImplementedError
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
