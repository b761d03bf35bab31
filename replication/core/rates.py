"""Rates over windows: the arithmetic of quotas, as functions of state and time.

Answers to org.apache.kafka.common.metrics.stats.{Rate,SampledStat,SimpleRate,TokenBucket} and
kafka.utils.QuotaUtils. Times are milliseconds on the scale of Clock.now_ms; amounts are bytes, percents,
partitions or connections, and rates are amounts a second.
"""

from __future__ import annotations

from math import floor


class WindowedRate:
    """The rate of what was recorded in the last `samples` windows of `window_ms` each, the current one included."""

    __slots__ = ("_current", "_kept", "samples", "window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self.samples = samples
        self.window_ms = window_ms
        self._kept: list[_Sample] = []
        self._current = 0

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount; a negative one takes back what was recorded."""
        kept = self._kept
        if not kept:
            kept.append(_Sample(now_ms))
        sample = kept[self._current]
        if now_ms - sample.start_ms >= self.window_ms:
            # One more than the samples, for the one that began before the time that is looked at.
            self._current = (self._current + 1) % (self.samples + 1)
            if self._current >= len(kept):
                kept.append(_Sample(now_ms))
            sample = kept[self._current]
            sample.reset(now_ms)
        sample.amount += amount
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        """The rate, a second."""
        elapsed_ms = self.elapsed_ms(now_ms)
        return sum(sample.amount for sample in self._kept) / (elapsed_ms / 1000)

    def elapsed_ms(self, now_ms: int) -> int:
        """The time that the rate is about: the windows before the current one count as whole ones."""
        elapsed_ms = now_ms - self._oldest_ms(now_ms)
        missing = self.samples - 1 - elapsed_ms // self.window_ms
        if missing > 0:
            elapsed_ms += missing * self.window_ms
        return max(elapsed_ms, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long to wait until the rate is down to `bound`, if nothing more is recorded; 0: it is not above."""
        rate = self.measure(now_ms)
        if not rate > bound:
            return 0
        return floor((rate - bound) / bound * self.elapsed_ms(now_ms) + 0.5)

    def _oldest_ms(self, now_ms: int) -> int:
        """The beginning of the oldest sample, without those that are too old."""
        if not self._kept:
            self._kept.append(_Sample(now_ms))
        expire_ms = self.samples * self.window_ms
        for sample in self._kept:
            if now_ms - sample.last_ms >= expire_ms:
                sample.reset(now_ms)
        return min(sample.start_ms for sample in self._kept)


class SimpleRate(WindowedRate):
    """A rate over the time since the oldest sample, at least one window: of what begins without a burst."""

    __slots__ = ()

    def elapsed_ms(self, now_ms: int) -> int:
        return max(now_ms - self._oldest_ms(now_ms), self.window_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        found = super().throttle_ms(bound, now_ms)
        # Until the first window is over no time has passed for the rate.
        return found and found + self.elapsed_ms(now_ms) - (now_ms - self._oldest_ms(now_ms))


class TokenBucket:
    """Credits that grow at the rate of a bound, up to what all windows allow; full at first.

    Below zero the quota is used up. Unlike a windowed rate it forgives a burst as soon as its time is over."""

    __slots__ = ("_filled_ms", "_seconds", "_tokens")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._seconds = samples * window_ms / 1000
        self._tokens = 0.0
        self._filled_ms: int | None = None

    def take(self, amount: float, bound: float, now_ms: int) -> float:
        """Take credits, which may lead below zero, and return what is left."""
        burst = self._seconds * bound
        if self._filled_ms is None:
            self._tokens = burst
        else:
            grown = self._tokens + bound * (now_ms - self._filled_ms) / 1000
            self._tokens = min(burst, grown)
        self._filled_ms = now_ms
        self._tokens = min(burst, self._tokens - amount)
        return self._tokens


class _Sample:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.amount = 0.0
        self.start_ms = self.last_ms = now_ms
