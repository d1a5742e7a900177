"""The durations of the exposure job, in one object for operators and tests."""

from dataclasses import dataclass

MILLISECOND_US = 1_000
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US


@dataclass(frozen=True, slots=True)
class Settings:
    """Durations in microseconds. Raises ValueError for an invalid one.

    Every boundary is a whole millisecond, because Spark's watermark and timers are in milliseconds:
    truncating a watermark then never moves it across a boundary.
    """

    window_us: int = 15 * MINUTE_US
    """Length of a window; windows tumble from 1970-01-01 UTC."""

    watermark_delay_us: int = 30 * SECOND_US
    """Delay of the watermark behind the newest plausible event of earlier batches."""

    late_cutoff_us: int = 2 * MINUTE_US
    """Time after its end in which a window accepts corrections."""

    future_tolerance_us: int = 5 * MINUTE_US
    """How far ahead of its batch an event may be dated."""

    def __post_init__(self) -> None:
        for name, shortest in (
            ("window_us", MILLISECOND_US),
            ("watermark_delay_us", 0),
            ("late_cutoff_us", 0),
            ("future_tolerance_us", 0),
        ):
            value = getattr(self, name)
            if value < shortest or value % MILLISECOND_US:
                raise ValueError(
                    f"{name} is {value}: expected whole milliseconds, at least {shortest}"
                )
