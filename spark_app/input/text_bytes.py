"""Operations on the bytes of a text column, for all rows at once."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_FIRST: Final = 0x21
_LAST: Final = 0x7E
"""The visible characters of ASCII; a space is not one of them."""


def all_visible_ascii(texts: pa.Array, longest: int) -> bool:
    """Return whether every text is 1 to `longest` visible ASCII characters, and none is null."""
    if texts.null_count:
        return False
    data, bounds = _raw(texts)
    lengths = np.diff(bounds)
    if not len(lengths) or lengths.min() < 1 or lengths.max() > longest:
        return False
    # Unsigned: values below the first character wrap to far above the last one.
    return bool(((data - np.uint8(_FIRST)) <= _LAST - _FIRST).all())


def crc32(texts: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the CRC-32 of each text's UTF-8 bytes, as `zlib.crc32`; there are no nulls."""
    data, bounds = _raw(texts)
    starts, lengths = bounds[:-1], np.diff(bounds)
    crc = np.full(len(lengths), 0xFFFF_FFFF, np.uint32)
    rows = np.arange(len(lengths))
    for position in range(int(lengths.max(initial=0))):
        rows = rows[lengths[rows] > position]
        byte = data[starts[rows] + position]
        crc[rows] = _TABLE[(crc[rows] ^ byte) & 0xFF] ^ (crc[rows] >> 8)
    return ~crc


def _raw(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the bytes of all texts, and their bounds: one more than there are texts."""
    if not len(texts):
        return np.zeros(0, np.uint8), np.zeros(1, np.int32)
    _, offsets, values = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(values or b"", np.uint8)[bounds[0] : bounds[-1]]
    return data, bounds - bounds[0]


def _table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB8_8320), table >> 1)
    return table


_TABLE: Final = _table()
