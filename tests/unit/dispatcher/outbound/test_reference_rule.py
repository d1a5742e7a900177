"""Which references may be resolved: by prefix and folder, never the process's own settings."""

import pytest

from holdfast.dispatcher.outbound.reference_rule import (
    ALLOW_DIR,
    ALLOW_PREFIX,
    ReferenceRule,
    rule_of,
)

OURS = ReferenceRule(("PAYOUTS_", "HOLDFAST_SECRET_"), ("/srv/secrets", "/run/secrets/holdfast"))


@pytest.mark.parametrize(
    "reference",
    [
        *("env:HOLDFAST_SECRET_A", "env:PAYOUTS_KEY", "file:/srv/secrets/a"),
        *("file:/run/secrets/holdfast/eu/..data/token", "file:/srv/secrets//a"),
    ],
)
def test_reference_below_what_is_allowed_is_fine(reference: str) -> None:
    assert OURS.fault(reference) is None


@pytest.mark.parametrize(
    "reference",
    [
        *("env:HOLDFAST_DSN", "env:HOLDFAST_ALLOW_SECRET_DIR", "env:PGPASSWORD", "env:OTEL_X"),
        *("env:PATH", "env:XHOLDFAST_SECRET_A", "env:holdfast_secret_a", "env:AWS_SECRET"),
        *("file:/etc/passwd", "file:/proc/self/environ", "file:/srv/secrets", "file:/srv/secretsx"),
        *("file:srv/secrets/a", "file:/srv/secrets/../x", "file:/srv/secrets/..", "file://srv/x"),
        "file:./srv/secrets/a",
    ],
)
def test_any_other_reference_is_refused_and_what_is_allowed_is_named(reference: str) -> None:
    fault = OURS.fault(reference) or ""
    for named in (reference, "PAYOUTS_*", "HOLDFAST_SECRET_*", "/srv/secrets"):
        assert named in fault


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((ALLOW_PREFIX, value) for value in ("H", "HOLDFAST_", "HOLDFAST_D", "P", "PG", "OTEL_A")),
        *((ALLOW_PREFIX, value) for value in ("A B", "*", "ABC_:", "9", "é", "9ABC_", "ABC_é_")),
        # The beginnings of names that were not meant, such as PATH and DATABASE_URL.
        *((ALLOW_PREFIX, value) for value in ("_", "D", "DAT", "DATA", "A_", "AB_", "ABC_:DATA")),
        *((ALLOW_DIR, value) for value in ("/", "//", "/.", "x", "/proc", "/proc/self", "/sys/a")),
        *((ALLOW_DIR, value) for value in ("/a/../..", "/dev", "/a:", "/a:b")),
    ],
)
def test_rule_that_reaches_the_process_itself_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="cannot be a"):
        rule_of({name: value})


def test_environment_gives_the_rule_and_nothing_the_default() -> None:
    assert rule_of({ALLOW_PREFIX: "ABC_:B_C_", ALLOW_DIR: ""}) == ReferenceRule(("ABC_", "B_C_"))
    assert rule_of({ALLOW_DIR: "/a:/b"}) == ReferenceRule(folders=("/a", "/b"))
    assert rule_of({}) == ReferenceRule(("HOLDFAST_SECRET_",), ("/run/secrets/holdfast",))
