"""Signing secrets: `whsec_` and base64 of 24 to 64 random bytes, loaded from a reference.

A secret is never passed on a command line: a reference names the environment variable or file that
contains it.
"""

import base64
import binascii
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.receiver.errors import SecretError

PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
FILE_BYTES_MAX = 4096

_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


@dataclass(frozen=True, slots=True)
class Secret:
    """One shared secret; `repr`, logs and messages never contain its bytes."""

    key: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "Secret":
        """Read the `whsec_...` form; raises `SecretError` for anything else.

        Strict on purpose: a lenient reader takes a typing error for a short secret.
        """
        if not text.startswith(PREFIX):
            raise SecretError(f"a signing secret starts with {PREFIX}")
        encoded = text.removeprefix(PREFIX)
        if not _BASE64.fullmatch(encoded):
            raise SecretError(f"a signing secret is {PREFIX} and padded standard base64")
        try:
            key = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise SecretError(f"a signing secret is {PREFIX} and padded standard base64") from None
        if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
            raise SecretError(
                f"a signing secret has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, not {len(key)}"
            )
        return cls(key)

    @classmethod
    def load(cls, reference: str) -> "Secret":
        """Load the secret from `env:VAR` or `file:PATH`; raises `SecretError`."""
        kind, separator, name = reference.partition(":")
        if separator and name and kind == "env":
            text = os.environ.get(name)
            if not text:
                raise SecretError(f"the environment variable {name} is empty or not set")
            return cls._parsed(text, reference)
        if separator and name and kind == "file":
            return cls._parsed(_content(Path(name)), reference)
        # The value may be the secret itself, so the message does not repeat it.
        raise SecretError("a secret reference is env:VAR or file:PATH, never the secret itself")

    @classmethod
    def _parsed(cls, text: str, reference: str) -> "Secret":
        try:
            return cls.parse(text.strip())
        except SecretError as error:
            raise SecretError(f"{reference}: {error}") from None


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SecretError(f"file:{path}: {error.strerror or 'cannot be read'}") from None
    if len(content) > FILE_BYTES_MAX or not content.isascii():
        raise SecretError(f"file:{path}: this file does not contain a signing secret")
    return content.decode("ascii")
