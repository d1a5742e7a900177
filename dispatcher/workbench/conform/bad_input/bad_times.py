"""Bad timestamps: too old, too new, and what lenient readers take for a number. Pure."""

from collections.abc import Callable
from functools import partial

from dispatcher.workbench.conform.bad_input.aim import Aim
from dispatcher.workbench.conform.bad_input.bad_checks import AGE, DIGITS, MATCH, BadInput, row
from dispatcher.workbench.conform.shot import Shot
from sink.contract.wire import TOLERANCE_SECONDS, WEBHOOK_TIMESTAMP

_BEYOND_SECONDS = TOLERANCE_SECONDS + 60
"""Beyond the tolerance also where the two clocks differ by most of a minute."""


def times() -> tuple[BadInput, ...]:
    forms: tuple[tuple[str, str, Callable[[int], str]], ...] = (
        ("float", "1674.0", lambda now: f"{now}.0"),
        ("exponent", "1674e0", lambda now: f"{now}e0"),
        ("underscore", "1_674", lambda now: f"{str(now)[0]}_{str(now)[1:]}"),
        ("arabic", "in Arabic digits", _arabic),
        ("leading-zero", "01674", lambda now: f"0{now}"),
        ("plus", "+1674", lambda now: f"+{now}"),
        ("negative", "-1674", lambda now: f"-{now}"),
        ("hexadecimal", "0x68a", hex),
        ("nan", "nan", lambda _now: "nan"),
        ("milliseconds", "in milliseconds", lambda now: f"{now}000"),
        ("twenty-digits", "of twenty digits", lambda _now: "9" * 20),
    )
    return (
        row(
            "time.stale",
            f"refuses a delivery signed {_BEYOND_SECONDS} s ago",
            AGE,
            lambda aim: aim.aged(_BEYOND_SECONDS),
        ),
        row(
            "time.day-old",
            "refuses a delivery signed a day ago",
            AGE,
            lambda aim: aim.aged(86_400),
        ),
        row(
            "time.future",
            f"refuses a delivery signed {_BEYOND_SECONDS} s ahead",
            AGE,
            lambda aim: aim.aged(-_BEYOND_SECONDS),
        ),
        row(
            "time.not-signed",
            "refuses another timestamp than was signed",
            MATCH,
            lambda aim: aim.good.with_header(WEBHOOK_TIMESTAMP, str(aim.now - 1)),
        ),
        *(
            row(
                f"time.{name}",
                f"refuses a timestamp {shown}",
                DIGITS,
                partial(_timestamped, form),
            )
            for name, shown, form in forms
        ),
    )


def _timestamped(form: Callable[[int], str], aim: Aim) -> Shot:
    return aim.timestamped(form(aim.now))


def _arabic(now: int) -> str:
    return "".join(chr(0x0660 + int(digit)) for digit in str(now))
