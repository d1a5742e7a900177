"""What the exposure step remembers of one key group between two batches."""

from dataclasses import dataclass, fields
from typing import Self

import pyarrow as pa

from spark_app.exposure.codec import decode_part, encode_part
from spark_app.exposure.errors import StateError
from spark_app.exposure.schema import STATE_ABSORBED, STATE_MERCHANTS, STATE_WINDOWS

SCHEMAS = {
    "windows": STATE_WINDOWS,
    "merchants": STATE_MERCHANTS,
    "absorbed": STATE_ABSORBED,
}


@dataclass(frozen=True, slots=True)
class GroupState:
    """Three tables, the columns of which are in `schema`; immutable.

    `absorbed` is by far the largest, and a step changes it in two ways only: it appends rows at the
    end, and rows of forgotten windows leave. When it does neither, the table is the same object as
    before. So ids can be stored in pieces, of which only the newest has to be written.
    """

    windows: pa.Table
    merchants: pa.Table
    absorbed: pa.Table

    @classmethod
    def empty(cls) -> Self:
        """The state of a group that never saw a row, or has forgotten all of them."""
        return cls(**{name: schema.empty_table() for name, schema in SCHEMAS.items()})

    def parts(self) -> dict[str, pa.Table]:
        """The tables by name, in the order in which `to_bytes` writes them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_bytes(self) -> bytes:
        """All parts, each in a frame of `codec`, one after another."""
        return b"".join(encode_part(name, table) for name, table in self.parts().items())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; raises StateTooNew or StateError in words."""
        rest, parts = memoryview(data), {}
        for name, schema in SCHEMAS.items():
            parts[name], rest = decode_part(name, schema, rest)
        if rest:
            raise StateError(
                f"The stored state is followed by {len(rest)} bytes of something else."
            )
        return cls(**parts)
