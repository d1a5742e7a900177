"""Bad signatures: malformed, too many, of others. Pure."""

import hashlib
import hmac
from base64 import b64encode

from dispatcher.receiver.message.secret import Secret
from dispatcher.workbench.conform.bad_input.aim import UNKNOWN_SECRET, Aim
from dispatcher.workbench.conform.bad_input.bad_checks import (
    COUNT,
    FORM,
    MATCH,
    BadInput,
    Check,
    Make,
    row,
)


def signatures() -> tuple[BadInput, ...]:
    rows: tuple[tuple[str, str, Check, Make], ...] = (
        ("no-comma", "`v1` alone", FORM, lambda aim: aim.signed("v1")),
        ("no-mac", "`v1,` alone", FORM, lambda aim: aim.signed("v1,")),
        ("not-base64", "base64 that is none", FORM, lambda aim: aim.signed("v1,!!not*base64!!")),
        (
            "one-character",
            "base64 of an impossible length",
            FORM,
            lambda aim: aim.signed("v1,A"),
        ),
        ("not-padded", "base64 without padding", FORM, lambda aim: aim.signed(_cut(aim, 1))),
        ("url-safe", "base64url", FORM, Aim.url_safe),
        ("truncated", "half a MAC", FORM, lambda aim: aim.encoded(aim.good_mac[:16])),
        ("empty-mac", "an empty MAC in base64", FORM, lambda aim: aim.signed("v1,====")),
        (
            "hex",
            "the MAC in hexadecimal",
            FORM,
            lambda aim: aim.signed(f"v1,{aim.good_mac.hex()}"),
        ),
        ("three-parts", "`v1,good,b`", FORM, lambda aim: aim.signed(f"{aim.good_signature},b")),
        (
            "commas-between",
            "entries with commas between",
            FORM,
            lambda aim: aim.signed(f"{aim.of(UNKNOWN_SECRET)},{aim.good_signature}"),
        ),
        ("version-2", "a v2 entry alone", FORM, lambda aim: aim.signed(_as(aim, "v2,"))),
        ("version-1a", "a v1a entry alone", FORM, lambda aim: aim.signed(_as(aim, "v1a,"))),
        ("upper-case", "`V1`", FORM, lambda aim: aim.signed(_as(aim, "V1,"))),
        ("no-version", "a MAC without version", FORM, lambda aim: aim.signed(_as(aim, ""))),
        (
            "other-secret",
            "a signature by another secret",
            MATCH,
            lambda aim: aim.signed(aim.of(UNKNOWN_SECRET)),
        ),
        (
            "empty-secret",
            "a signature by an empty secret",
            MATCH,
            lambda aim: aim.signed(aim.of(Secret(b""))),
        ),
        (
            "body-alone",
            "a MAC over the body alone",
            MATCH,
            lambda aim: aim.encoded(hmac.digest(aim.secret.key, aim.delivery.body, "sha256")),
        ),
        (
            "no-key",
            "a hash in place of a MAC",
            MATCH,
            lambda aim: aim.signed(
                "v1," + b64encode(hashlib.sha256(aim.delivery.body).digest()).decode()
            ),
        ),
        ("seventeen", "17 signatures, the last one good", COUNT, lambda aim: aim.many(17)),
        ("hundred", "100 signatures, the last one good", COUNT, lambda aim: aim.many(100)),
    )
    return tuple(
        row(f"signature.{name}", f"refuses {title}", check, make)
        for name, title, check, make in rows
    )


def _as(aim: Aim, prefix: str) -> str:
    return prefix + aim.good_signature.removeprefix("v1,")


def _cut(aim: Aim, count: int) -> str:
    return aim.good_signature[:-count]
