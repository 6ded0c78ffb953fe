"""What holds for all tests."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=2)
@given(st.booleans())
def test_an_example_may_take_longer_than_the_deadline_of_hypothesis(longer: bool) -> None:
    time.sleep(0.25 * longer)
