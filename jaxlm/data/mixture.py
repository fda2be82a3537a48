"""Which source each window of a mix is from: a pure function of the weights and the window's number.

Windows are mixed, not documents, whose lengths differ: a share of the windows is the same share of the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

ONE = "all"  # the name of the only source, where none has a name
TOLERANCE = Fraction(1, 1000)  # between a source's share of what is written and its weight


class Mixture:
    """Sources by name with their shares of the windows, exact: fractions of the weights as they are written.

    After any n windows each source has w*n of them, to less than one window. (The window that is due first comes next:
    the k-th of a source, from k = 0, may come from number k/w on and is due before (k+1)/w; on one machine, jobs of
    this kind all meet their deadlines. Taking the largest deficit instead may be more than one window behind where
    there are many sources.) Equal deadlines go by the order of the names.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.names: tuple[str, ...] = tuple(weights)
        exact = [Fraction(repr(float(weight))) for weight in weights.values()]
        shares = [weight / sum(exact) for weight in exact]
        self._period = math.lcm(*(share.denominator for share in shares))
        self._parts = [int(share * self._period) for share in shares]  # windows of each source in a period

    @classmethod
    def of(cls, weights: Mapping[str, float]) -> Mixture:
        """The mixture of a config's `weights`; one source without a name is a mixture of one."""
        return cls(weights or {ONE: 1.0})

    def order(self) -> Iterator[int]:
        """The index of the source of window 0, 1, 2, ... without end."""
        common = math.lcm(*self._parts)
        between = [common // part for part in self._parts]  # deadlines of one source, in windows * common / period
        counts = [0] * len(self._parts)
        number = 0
        while True:
            number += 1
            may_come = [i for i, part in enumerate(self._parts) if counts[i] * self._period < part * number]
            due = min(may_come, key=lambda i: (counts[i] + 1) * between[i])
            counts[due] += 1
            yield due

    def sources(self, count: int) -> npt.NDArray[np.int64]:
        """The index in `names` of the source of each of the first `count` windows: int64 [count]."""
        one_period = np.fromiter(self.order(), np.int64, min(count, self._period))
        return np.resize(one_period, count)  # after a period every source has exactly its share, and it begins again

    def is_balanced(self, counts: Sequence[int]) -> bool:
        """Whether windows in these numbers have the shares of the weights within 0.1 %."""
        total = sum(counts)
        furthest = max(abs(c * self._period - part * total) for c, part in zip(counts, self._parts, strict=True))
        return furthest <= TOLERANCE * self._period * total

    def largest_balanced(self, limit: int) -> int:
        """The largest number of windows, at most `limit`, that is balanced; 0 where none is."""
        if limit >= 1 / TOLERANCE:  # less than one window of a thousand or more
            return limit
        counts, found = [0] * len(self.names), 0
        for number, source in enumerate(self.sources(limit).tolist(), 1):
            counts[source] += 1
            found = number if self.is_balanced(counts) else found
        return found
