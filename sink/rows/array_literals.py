"""Arrow columns as Postgres array literals: one parameter for any number of rows."""

import pyarrow as pa
import pyarrow.compute as pc

from sink.rows.copy_format import has_zone, utc_texts

_TEXT = pa.large_string()


def array_literal(column: pa.ChunkedArray) -> str:
    """Return `{"...",NULL,...}` for strings, integers and timestamps, in the column's order.

    >>> array_literal(pa.chunked_array([["a", None, 'q"']]))
    '{"a",NULL,"q\\\\""}'
    """
    given = utc_texts(column) if has_zone(column.type) else column.cast(_TEXT)
    texts = given.combine_chunks()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        for character in ("\\", '"'):
            texts = pc.replace_substring(texts, character, f"\\{character}")
    quoted = pc.binary_join_element_wise(_scalar('"'), texts, _scalar('"'), _scalar(""))
    quoted = pc.fill_null(quoted, "NULL")
    offsets = pa.array([0, len(quoted)], pa.int64())
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, quoted), _scalar(","))
    return f"{{{joined[0].as_py()}}}"


def _scalar(text: str) -> pa.Scalar:
    return pa.scalar(text, _TEXT)
