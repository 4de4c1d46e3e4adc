"""Thousands of calls with arguments that are nearly right: each is carried out or refused, whatever arrays hold."""

import random

import numpy
import pytest

import raggedmla
from test_refusals import ARRAYS, OPTIONAL_ARRAYS

EXTREMES = [-(2**63), 2**63 - 1, -(2**31), 2**31 - 1, -1, 0, 1, 2, 3, 63, 64, 65, 1000]
OTHERS = [None, 0, -1, 3, 2.0, "dense", True, (), object(), raggedmla.Workspace()]
ARGUMENTS = {}
for call, argument, right in ARRAYS + OPTIONAL_ARRAYS:
    ARGUMENTS.setdefault(call, {})[argument] = right
RIGHT = [right for arguments in ARGUMENTS.values() for right in arguments.values()]


def nearly(array, rng):
    """The array with other contents and perhaps another size or other strides."""
    if array.dtype.kind == "i":
        limits = numpy.iinfo(array.dtype)
        values = [max(limits.min, min(limits.max, rng.choice(EXTREMES))) for _ in range(array.size)]
        array = numpy.array(values, array.dtype).reshape(array.shape)
    change = rng.randrange(6)
    if change == 0:
        return numpy.repeat(array, 2, axis=0)[::2]
    if change == 1:
        return numpy.concatenate([array, array])[: rng.randrange(2 * len(array) + 1)]
    if change == 2:
        return array.T
    return array.copy()


@pytest.mark.parametrize("seed", range(4))
def test_random_arguments(seed):
    rng = random.Random(seed)
    outcomes = {"done": 0, "refused": 0}
    for _ in range(2000):
        call, known = rng.choice(list(ARGUMENTS.items()))
        arguments = {}
        for name in rng.sample(list(known), min(len(known), rng.choice([1, 1, 2, 3]))):
            kind = rng.random()
            if kind < 0.1:
                arguments[name] = rng.choice(OTHERS)
            else:
                arguments[name] = nearly(rng.choice(RIGHT) if kind < 0.3 else known[name], rng)
        try:
            call(**arguments)
            outcomes["done"] += 1
        except (ValueError, TypeError) as error:
            assert "incompatible function arguments" not in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 300, outcomes
