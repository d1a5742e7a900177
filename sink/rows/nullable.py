"""Rows whose types allow a null everywhere, so that no value stops the batch.

Spark makes fields that are not nullable, as of `F.when(..., F.struct(F.lit(1)))`. PyArrow refuses
to cast a null around such a field, and casts a list of nulls to one with too few elements. So the
types are exchanged, and the buffers stay as they are.
"""

from ctypes import addressof, create_string_buffer

import pyarrow as pa

_ARROW_ARRAY_BYTES = 80
"""Size of `struct ArrowArray` where a pointer has 64 bits (Arrow C data interface)."""


def nullable_in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same buffers as `nullable_schema`; copies nothing."""
    # The protocol with capsules, which is public, is not in PyArrow 12 and 13.
    array = create_string_buffer(_ARROW_ARRAY_BYTES)
    batch._export_to_c(addressof(array))  # noqa: SLF001
    return pa.RecordBatch._import_from_c(addressof(array), nullable_schema(batch.schema))  # noqa: SLF001


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with all fields nullable, and all zones UTC.

    In another zone a time near year 1 or 9999 has another year.
    """
    return pa.schema([_nullable(field) for field in schema])


def _nullable(field: pa.Field) -> pa.Field:
    types, type_ = pa.types, field.type
    if types.is_timestamp(type_) and type_.tz is not None:
        type_ = pa.timestamp(type_.unit, "UTC")
    elif types.is_struct(type_):
        type_ = pa.struct([_nullable(inner) for inner in type_])
    elif types.is_large_list(type_):
        type_ = pa.large_list(_nullable(type_.value_field))
    elif types.is_list(type_):
        type_ = pa.list_(_nullable(type_.value_field))
    elif types.is_map(type_):
        # A map's keys are never null.
        key = _nullable(type_.key_field).with_nullable(False)
        type_ = pa.map_(key, _nullable(type_.item_field), type_.keys_sorted)
    return field.with_type(type_).with_nullable(True)
