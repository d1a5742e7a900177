"""Bad headers: missing, empty, twice, not ASCII, not what was signed. Pure."""

from functools import partial

from dispatcher.workbench.conform.bad_input.aim import UNKNOWN_SECRET, Aim
from dispatcher.workbench.conform.bad_input.bad_checks import (
    ASCII,
    ENCODED,
    ID,
    IDEMPOTENCY,
    KEY,
    MATCH,
    MISSING,
    TWICE,
    BadInput,
    row,
)
from dispatcher.workbench.conform.shot import Shot
from sink.contract.wire import IDEMPOTENCY_KEY, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP


def headers() -> tuple[BadInput, ...]:
    names = (WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE)
    short = {name: name.removeprefix("webhook-") for name in names}
    return (
        *(
            row(
                f"header.no-{short[name]}",
                f"refuses a request without {name}",
                MISSING,
                partial(_with, name, ()),
            )
            for name in names
        ),
        *(
            row(
                f"header.empty-{short[name]}",
                f"refuses an empty {name}",
                MISSING,
                partial(_with, name, ("",)),
            )
            for name in names
        ),
        *(
            row(
                f"header.two-{short[name]}s",
                f"refuses two {name} headers",
                TWICE,
                partial(_with_two, name),
            )
            for name in names
        ),
        row(
            "header.beyond-ascii",
            "refuses a signature header with characters beyond ASCII",
            ASCII,
            lambda aim: aim.signed(f"{aim.good_signature} v1,é".encode()),
        ),
        row("id.dot", "refuses an id with a dot", ID, lambda aim: aim.named("hf.conform")),
        row("id.long", "refuses an id of 257 characters", ID, lambda aim: aim.named("x" * 257)),
        row(
            "id.not-signed",
            "refuses another id than was signed",
            MATCH,
            lambda aim: aim.good.with_header(WEBHOOK_ID, aim.other_key),
        ),
        row(
            "id.not-the-key",
            "refuses an id that is not the body's key",
            KEY,
            lambda aim: aim.named(aim.other_key),
        ),
        row(
            "id.other-idempotency-key",
            "refuses the Idempotency-Key of another delivery",
            IDEMPOTENCY,
            lambda aim: aim.good.with_header(IDEMPOTENCY_KEY, f'"{aim.other_key}"'),
        ),
        row(
            "encoding.gzip",
            "refuses a compressed body, signed as it arrived",
            ENCODED,
            lambda aim: aim.compressed(signs_plain=False),
        ),
        row(
            "encoding.gzip-of-signed",
            "refuses a compressed body, signed as it was before",
            ENCODED,
            lambda aim: aim.compressed(signs_plain=True),
        ),
    )


def _with(name: str, values: tuple[str, ...], aim: Aim) -> Shot:
    return aim.good.with_header(name, *values)


def _with_two(name: str, aim: Aim) -> Shot:
    value = next(value for given, value in aim.good.headers if given == name.encode())
    other = aim.of(UNKNOWN_SECRET).encode() if name == WEBHOOK_SIGNATURE else value
    return aim.good.with_header(name, other, value)
