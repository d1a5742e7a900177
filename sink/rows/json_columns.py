"""Columns of values as columns of canonical JSON, with Arrow's kernels: no Python object per value.

The result equals the output of `holdfast.sink.contract.canonical`, byte for byte, for every value
that these kernels support. Other values (a control character, an integer beyond 2^53-1, a year
beyond 9999) are only marked `odd`; `read_rows.entry_of` reads their rows one by one.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sink.contract.canonical import DEPTH_MAX, INTEGER_MAX, canonical_json

Mask: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"
Bytes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"

_TEXT = pa.large_string()
_YEAR_1, _YEAR_9999_ENDS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""In microseconds since 1970."""

_END = 26
"""After the last character of a time in microseconds. PyArrow 12 slices to no open end."""

_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))


class Texts(NamedTuple):
    """One text for each value, and which values are odd (their texts are undefined)."""

    texts: pa.Array
    odd: Mask


class Parts(NamedTuple):
    """As `Texts`, in parts that `joined` concatenates, so that each byte is copied once."""

    parts: list["pa.Array | str"]
    odd: Mask


class Malformed(ValueError):
    """Some text in the column is not UTF-8."""


def json_of(values: pa.Array, depth: int = 0) -> Texts:
    """Return values as canonical JSON; raises `Malformed`.

    >>> json_of(pa.array(["a", None])).texts.to_pylist()
    ['"a"', 'null']
    """
    parts, odd = parts_of(values, depth)
    return Texts(joined(*parts, count=len(values)), odd)


def parts_of(values: pa.Array, depth: int = 0) -> Parts:
    """Return values as canonical JSON in parts; raises `Malformed`."""
    kind = _writer(values.type)
    if kind is None or depth > DEPTH_MAX:
        # Nulls too: the whole row is read singly.
        return Parts([pa.nulls(len(values), _TEXT)], np.ones(len(values), bool))
    parts, odd = kind(values, depth)
    if not values.null_count:
        return Parts(parts, odd)
    texts = pc.if_else(values.is_valid(), joined(*parts, count=len(values)), None)
    return Parts([pc.coalesce(texts, _scalar("null"))], odd)


def text_of(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Return strings as `large_string`, and which hold a character that JSON escapes.

    Raises `Malformed`.
    """
    texts = values.cast(_TEXT)
    data = _data(texts)
    if data.size and data.max() >= 0x80:
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid as error:
            raise Malformed(str(error)) from None
    return texts, _rows_with(texts, (data < 0x20) | (data == 0x22) | (data == 0x5C))


def times_of(values: pa.Array) -> Texts:
    """Return timestamps as RFC 3339 in UTC, without quotes; nulls are null."""
    coded = values.cast(pa.int64()).dictionary_encode()
    times = _moments(coded.dictionary).take(coded.indices)
    return Texts(times, np.asarray(pc.and_(values.is_valid(), times.is_null())))


def joined(*parts: "pa.Array | str", count: int) -> pa.Array:
    """Return `count` concatenated texts; null where one of the parts is null."""
    merged: list[pa.Array | pa.Scalar] = [
        _scalar(part) if isinstance(part, str) else part for part in _merged(parts)
    ]
    if len(merged) == 1:
        only = merged[0]
        return pa.repeat(only, count) if isinstance(only, pa.Scalar) else only
    return pc.binary_join_element_wise(*merged, _scalar(""))


def _merged(parts: "Iterable[pa.Array | str]") -> "Iterator[pa.Array | str]":
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        if text:
            yield text
        yield part
        text = ""
    if text:
        yield text


def _writer(type_: pa.DataType) -> Callable[[pa.Array, int], Parts] | None:
    types = pa.types
    for holds, writer in (
        (types.is_string(type_) or types.is_large_string(type_), _strings),
        (types.is_boolean(type_) or types.is_null(type_), _as_text),
        (types.is_integer(type_), _integers),
        (types.is_timestamp(type_), _instants),
        (types.is_struct(type_), _structs),
        (types.is_list(type_) or types.is_large_list(type_), _lists),
    ):
        if holds:
            return writer
    return None


def _strings(values: pa.Array, _depth: int) -> Parts:
    texts, special = text_of(values)
    odd = np.zeros(len(values), bool)
    if special.any():
        for character, escaped in _ESCAPES:
            texts = pc.replace_substring(texts, character, escaped)
        odd = _rows_with(texts, _data(texts) < 0x20)
    return Parts(['"', texts, '"'], odd)


def _as_text(values: pa.Array, _depth: int) -> Parts:
    return Parts([values.cast(_TEXT)], np.zeros(len(values), bool))


def _integers(values: pa.Array, _depth: int) -> Parts:
    odd = np.zeros(len(values), bool)
    if values.type.bit_width == 64:
        odd |= true(pc.greater(values, pa.scalar(INTEGER_MAX, values.type)))
        if pa.types.is_signed_integer(values.type):
            odd |= true(pc.less(values, pa.scalar(-INTEGER_MAX, values.type)))
    return Parts([values.cast(_TEXT)], odd)


def _instants(values: pa.Array, _depth: int) -> Parts:
    texts, odd = times_of(values)
    return Parts(['"', texts, '"'], odd)


def _structs(values: pa.Array, depth: int) -> Parts:
    fields = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    odd = np.zeros(len(values), bool)
    parts: list[pa.Array | str] = []
    for name, label in _labels(list(fields)):
        inner = parts_of(fields[name], depth + 1)
        odd |= inner.odd
        parts += [label, *inner.parts]
    return Parts([*parts, "}"] if parts else ["{}"], odd)


def _labels(names: list[str]) -> Iterator[tuple[str, str]]:
    before = "{"
    for name in sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass")):
        yield name, f"{before}{canonical_json(name).decode()}:"
        before = ","


def _lists(values: pa.Array, depth: int) -> Parts:
    items = parts_of(values.flatten(), depth + 1)
    counts = np.asarray(pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64()))
    ends = np.cumsum(counts)
    odd = np.zeros(len(values), bool)
    odd[np.searchsorted(ends, np.flatnonzero(items.odd), side="right")] = True
    before, texts, after = _framed(items.parts, int(ends[-1]) if len(ends) else 0)
    if before and not counts.all():
        # An empty list has no frame.
        before, texts, after = "", joined(before, texts, after, count=len(texts)), ""
    offsets = pa.array(np.concatenate([[0], ends]), pa.int64())
    lists = pa.LargeListArray.from_arrays(offsets, texts)
    inner = pc.binary_join(lists, _scalar(f"{after},{before}"))
    return Parts([f"[{before}", inner, f"{after}]"], odd)


def _framed(parts: "list[pa.Array | str]", count: int) -> tuple[str, pa.Array, str]:
    """Return the parts as one column between two constants; both are there, or both are empty."""
    match parts:
        case [str(before), pa.Array() as texts, str(after)]:
            return before, texts, after
    return "", joined(*parts, count=count), ""


def _moments(micros: pa.Array) -> pa.Array:
    """As `canonical.rfc3339_from_micros`; null where a year is not 1 to 9999."""
    within = pc.and_(pc.greater_equal(micros, _YEAR_1), pc.less_equal(micros, _YEAR_9999_ENDS))
    moments = pc.if_else(within, micros, None).cast(pa.timestamp("us"))
    seconds = moments.cast(pa.timestamp("s"), safe=False)
    is_exact = pc.equal(seconds.cast(pa.timestamp("us")), moments)
    texts = pc.if_else(is_exact, seconds.cast(_TEXT), moments.cast(_TEXT))
    day, time = (pc.utf8_slice_codeunits(texts, *place) for place in ((0, 10), (11, _END)))
    return joined(day, "T", time, "Z", count=len(micros))


def _data(texts: pa.Array) -> Bytes:
    """Return the concatenated bytes of all texts."""
    offsets, values = _offsets(texts), texts.buffers()[2]
    if values is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(values, np.uint8)[offsets[0] : offsets[-1]]


def _offsets(texts: pa.Array) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    if not len(texts):
        return np.zeros(1, np.int64)
    return np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]


def _rows_with(texts: pa.Array, marked: Mask) -> Mask:
    """Return the mask of texts that hold a marked byte."""
    rows = np.zeros(len(texts), bool)
    if marked.any():
        offsets = _offsets(texts)
        places = np.flatnonzero(marked) + offsets[0]
        rows[np.searchsorted(offsets, places, side="right") - 1] = True
    return rows


def true(values: pa.Array) -> Mask:
    """Return the mask of true values; null counts as false."""
    mask: Mask = np.asarray(pc.fill_null(values, fill_value=False))
    return mask


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)
