"""Hashes of text columns: keys, and contents under one key."""

import hashlib
from collections.abc import Iterable
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TEXT = pa.large_string()
_HASH_BYTES = 16
_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two hex digits of each byte."""


def hashes(texts: pa.Array, heads: pa.Array | None = None) -> pa.Array:
    """Return the first 128 bits of each text's SHA-256 in hex digits; null is read as empty.

    Where `heads` are given, each text is hashed after its head.

    >>> hashes(pa.array(["", None]))[1].as_py()
    'e3b0c44298fc1c149afbf4c8996fb924'
    """
    count, size = len(texts), 2 * _HASH_BYTES
    digests = []
    # Copying a hash object costs less than creating one, and few heads differ.
    for begun, text in zip(_head_hashes(heads, count), _plain_bytes(texts), strict=True):
        hashed = begun.copy()
        hashed.update(text)
        digests.append(hashed.digest())
    bits = np.frombuffer(b"".join(digests), np.uint8)
    digits = _DIGITS[bits.reshape(count, hashlib.sha256().digest_size)[:, :_HASH_BYTES]]
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int64)
    return pa.Array.from_buffers(_TEXT, count, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])


def contents(entries: pa.Table) -> pa.ChunkedArray:
    """Return the content hash of `prepared.ENTRIES`, of head and tail, in hex."""
    chunks = [
        hashes(batch.column("tail"), batch.column("head"))
        for batch in entries.select(["head", "tail"]).to_batches()
    ]
    return pa.chunked_array(chunks, _TEXT).cast(pa.string())


def _head_hashes(heads: pa.Array | None, count: int) -> "Iterable[hashlib._Hash]":
    if heads is None:
        return repeat(hashlib.sha256(), count)
    coded = pc.fill_null(heads, "").dictionary_encode()
    begun = [hashlib.sha256(head) for head in _plain_bytes(coded.dictionary)]
    return map(begun.__getitem__, coded.indices.to_pylist())


def _plain_bytes(texts: pa.Array) -> list[bytes]:
    plain: list[bytes] = pc.fill_null(texts, "").cast(pa.large_binary()).to_pylist()
    return plain
