"""Transforms of values: worked numbers of the functions, their inverses and the TD targets."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.losses.transforms import IDENTITY, SYMLOG, ValueTransform, rescale, rescaling, symexp, symlog, unscale
from tests.marks import SLOW
from tests.modes import Variant

H = {
    0: 0.0,
    0.5: 0.2252448714,
    1: 0.4152135624,
    10: 2.3266247904,
    100: 9.1498756211,
    1000: 31.6385840391,
    10000: 109.0049998751,
}
INVERSE = {0.5: 1.2462627649, 1: 2.9880567017, 5: 34.5861622556, 10: 117.4303227796, 30: 904.7255445489}


def exactly(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_worked_numbers(variant: Variant) -> None:
    """Checks both signs, since h is odd."""
    x = exactly(*H, *(-x for x in H))
    y = variant(rescale, (x,))(x)
    torch.testing.assert_close(y, exactly(*H.values(), *(-y for y in H.values())), rtol=0, atol=1e-10)
    back = variant(unscale, (y,))(y)
    assert ((back - x).abs() <= 6e-12 * x.abs().clamp_min(1)).all()


def test_worked_numbers_of_the_inverse(variant: Variant) -> None:
    y = exactly(*INVERSE, *(-y for y in INVERSE))
    expected = exactly(*INVERSE.values(), *(-x for x in INVERSE.values()))
    torch.testing.assert_close(variant(unscale, (y,))(y), expected, rtol=0, atol=5e-10)


@SLOW
@settings(max_examples=200)
@given(x=st.floats(-1e6, 1e6, width=32), eps=st.sampled_from([0.0, 1e-3, 0.1]))
def test_unscale_inverts_rescale_in_float32(x: float, eps: float) -> None:
    assert float(unscale(rescale(torch.tensor(x), eps), eps)) == pytest.approx(x, rel=1e-5, abs=1e-6)


def test_unscale_avoids_the_cancellation_of_the_textbook_formula() -> None:
    y, eps = torch.tensor(1e-4), 1e-3
    textbook = ((torch.sqrt(1 + 4 * eps * (y.abs() + 1 + eps)) - 1) / (2 * eps)) ** 2 - 1
    exact = float(unscale(y.double()))
    assert float(unscale(y)) == pytest.approx(exact, rel=1e-2)
    assert float(textbook) != pytest.approx(exact, rel=1e-2)


def test_worked_targets_with_decoys(variant: Variant) -> None:
    """Uses rewards 2 and 1, gamma 0.997 and a rescaled value of 3; after a termination the value (66) has no effect."""
    arguments = (exactly(2 + 0.997 * 1).repeat(2), exactly(0.997**2, 0.0), exactly(3.0, 66.0))
    y = variant(rescaling(1e-3).target, arguments)(*arguments)
    torch.testing.assert_close(y, exactly(3.3524192190, 1.0022468593), rtol=0, atol=1e-9)
    plain = exactly(2.997 + 0.997**2 * 3.0)  # decoy: no rescaling
    assert not torch.isclose(y[0], plain, rtol=1e-3)
    assert not torch.isclose(y[0], rescale(plain), rtol=1e-3)  # decoy: the value was not unscaled
    torch.testing.assert_close(variant(IDENTITY.target, arguments)(*arguments), torch.cat([plain, exactly(2.997)]))


def test_worked_target_of_symlog() -> None:
    """Return 1, discount 1/2 and a transformed value of ln 4, which is a return of 3: y = ln(1 + 1 + 3/2)."""
    y = SYMLOG.target(exactly(1.0), exactly(0.5), exactly(4.0).log())
    torch.testing.assert_close(y, exactly(3.5).log())
    assert not torch.isclose(y, symlog(1.0 + 0.5 * exactly(4.0).log())).any()  # decoy: the value was not inverted


@pytest.mark.parametrize("transform", [IDENTITY, SYMLOG, rescaling(1e-3), rescaling(0.0)])
def test_the_second_function_inverts_the_first(transform: ValueTransform) -> None:
    x = exactly(-1e4, -0.3, 0.0, 2.0, 500.0)
    torch.testing.assert_close(transform.invert(transform.apply(x)), x, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("x", "y"), [(0.0, 0.0), (1.0, math.log(2.0)), (-1.0, -math.log(2.0)), (math.e - 1.0, 1.0)])
def test_worked_symlog(x: float, y: float) -> None:
    torch.testing.assert_close(symlog(exactly(x)), exactly(y))
    torch.testing.assert_close(symexp(exactly(y)), exactly(x))


@given(x=st.floats(-1e6, 1e6))
def test_symexp_inverts_symlog(x: float) -> None:
    assert float(symexp(symlog(exactly(x)))) == pytest.approx(x, rel=1e-9, abs=1e-9)
