"""Bad bodies: not what was signed, and signed but not what a delivery is. Pure."""

from dispatcher.workbench.conform.bad_input.aim import Aim
from dispatcher.workbench.conform.bad_input.bad_checks import BODY, MATCH, BadInput, Make, row
from dispatcher.workbench.conform.rule import Severity
from dispatcher.workbench.conform.shot import Shot

_DEEP = 100_000
"""Deep enough for a reader that recurses to run out of stack."""


def bodies() -> tuple[BadInput, ...]:
    """Return the rows for bodies."""
    return (
        *(row(f"raw.{name}", f"refuses {title}", MATCH, make) for name, title, make in _raw()),
        *(row(f"body.{name}", f"refuses {title}", BODY, make) for name, title, make in _form()),
        *(
            row(f"body.{name}", f"refuses {title}", BODY, make, Severity.SHOULD)
            for name, title, make in _disagreed()
        ),
    )


def _raw() -> tuple[tuple[str, str, Make], ...]:
    """Bytes that were not signed."""
    return (
        (
            "rewritten",
            "a body written anew with other white space",
            lambda aim: aim.good.with_body(aim.spaced()),
        ),
        (
            "newline",
            "a body with a newline after it",
            lambda aim: aim.good.with_body(aim.delivery.body + b"\n"),
        ),
        (
            "byte-order-mark",
            "a body with a byte order mark before it",
            lambda aim: aim.good.with_body(b"\xef\xbb\xbf" + aim.delivery.body),
        ),
        ("cut", "a body that was cut", lambda aim: aim.good.with_body(aim.delivery.body[:-1])),
        ("none", "an empty body that was signed as another", lambda aim: aim.good.with_body(b"")),
    )


def _form() -> tuple[tuple[str, str, Make], ...]:
    """Signed bodies that are no delivery."""
    return (
        ("empty", "a signed empty body", lambda aim: aim.saying(b"")),
        ("not-json", "a signed body that is not JSON", lambda aim: aim.saying(b"{")),
        ("not-utf8", "a signed body that is not UTF-8", _not_utf8),
        ("array", "a signed array", lambda aim: aim.saying(b"[]")),
        ("no-type", "a body without type", lambda aim: aim.without("type")),
        ("no-sequence", "a body without sequence", lambda aim: aim.without("sequence")),
        ("no-key", "a body without key", lambda aim: aim.without("key")),
        ("no-data", "a body without data", lambda aim: aim.without("data")),
        ("sequence-zero", "a sequence of 0", lambda aim: aim.with_member("sequence", 0)),
        ("sequence-text", "a sequence as text", lambda aim: aim.with_member("sequence", "1")),
    )


def _disagreed() -> tuple[tuple[str, str, Make], ...]:
    """Signed bodies that JSON readers read differently."""
    return (
        (
            "member-twice",
            "a member that occurs twice",
            lambda aim: aim.with_raw_member(b'"sequence":2'),
        ),
        ("float", "a number with a fraction", lambda aim: aim.with_raw_member(b'"conform":1.5')),
        ("nan", "NaN", lambda aim: aim.with_raw_member(b'"conform":NaN')),
        (
            "large-integer",
            "an integer beyond 2^53-1",
            lambda aim: aim.with_raw_member(b'"conform":9007199254740993'),
        ),
        ("nul", "NUL in a text", lambda aim: aim.with_raw_member(b'"conform":"\\u0000"')),
        (
            "lone-surrogate",
            "a lone surrogate",
            lambda aim: aim.with_raw_member(b'"conform":"\\ud800"'),
        ),
        (
            "deep",
            f"an array nested {_DEEP:,} deep",
            lambda aim: aim.with_raw_member(b'"conform":' + b"[" * _DEEP + b"]" * _DEEP),
        ),
    )


def _not_utf8(aim: Aim) -> Shot:
    return aim.saying(aim.delivery.body.replace(b'"key":"', b'"key":"\xff', 1))
