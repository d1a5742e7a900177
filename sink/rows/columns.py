"""The columns that a batch must have: checked before any row, all problems in one error."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from holdfast.sink.contract.states import RULE_FORM, QuarantineReason, is_rule
from holdfast.sink.errors import SchemaMismatch

_Test = Callable[[pa.DataType], Any]


class _Column(NamedTuple):
    fits: _Test
    expected: str
    fix: str
    required: bool = True


def _is_text(type_: pa.DataType) -> Any:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_)


def _is_texts(type_: pa.DataType) -> Any:
    return _is_list(type_) and _is_text(type_.value_type)


def _is_list(type_: pa.DataType) -> Any:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_)


def _is_instant(type_: pa.DataType) -> Any:
    return pa.types.is_timestamp(type_) and type_.unit == "us" and type_.tz is not None


def _or_null(test: _Test) -> _Test:
    return lambda type_: test(type_) or pa.types.is_null(type_)


ENTRY: Mapping[str, _Column] = {
    "subject": _Column(_is_text, "string", "cast it to string"),
    "type": _Column(_is_text, "string", "cast it to string"),
    "key": _Column(_is_texts, "array<string>", "build it with F.array(...) of strings"),
    "occurred_at": _Column(
        _is_instant, "timestamp in microseconds with a time zone", "cast it to timestamp"
    ),
    "data": _Column(pa.types.is_struct, "struct", "build it with F.struct(...)"),
    "priority": _Column(
        _or_null(pa.types.is_signed_integer), "an integer", "cast it to smallint", required=False
    ),
    "traceparent": _Column(_or_null(_is_text), "string", "cast it to string", required=False),
    "rejected": _Column(
        _or_null(_is_text), "string", "name the rule that rejects the row, or null", required=False
    ),
    "rejected_event": _Column(
        _or_null(_is_text), "string", "make it text, as by F.to_json(...)", required=False
    ),
}
"""The columns of `BatchInput.entries`; nothing else may be in it."""

OF_RULES = ("rejected", "rejected_event")
"""Those that say which rows become no entry."""

REFUSED: Mapping[str, _Column] = {
    "reason": _Column(_is_text, "string", "use a QuarantineReason, or name a rule"),
    "detail": _Column(_or_null(_is_text), "string", "cast it to string"),
    "row": _Column(_or_null(_is_text), "string", "build it with F.to_json(F.struct(...))"),
}
"""The columns of `BatchInput.refused`."""


COMES_AGAIN = (
    "No row was read and nothing was written now; the batch is replayed when the query restarts."
)


def check_entries(table: pa.Table, what_now: str = COMES_AGAIN) -> None:
    """Raise one `SchemaMismatch` that names every wrong column of `table` and its correction."""
    problems = list(_problems(table.schema, ENTRY, "put it into 'data', or drop it"))
    names = table.column_names
    if names.count("data") == 1 and pa.types.is_struct(table.schema.field("data").type):
        problems += _uncanonical(table.schema.field("data").type, "data")
    refuse("entries", problems, what_now)


def check_refused(table: pa.Table) -> None:
    """As `check_entries`, for rows refused before; a reason is a `QuarantineReason` or a rule."""
    problems = list(_problems(table.schema, REFUSED, "put it into 'row', or drop it"))
    if not problems:
        known = {reason.value for reason in QuarantineReason} - {QuarantineReason.REJECTED}
        problems += [
            f"reason {reason!r} is not known: use one of {', '.join(sorted(known))}, or the name of"
            f" a rule of yours ({RULE_FORM})"
            for reason in sorted(set(table.column("reason").unique().to_pylist()) - known, key=str)
            if reason is None or not is_rule(reason)
        ]
    refuse("refused", problems)


def check_companion(name: str, table: pa.Table) -> None:
    """Raise `SchemaMismatch` unless `table` is flat and each of its columns has one text form."""
    problems = list(_duplicate_names(table.column_names))
    for field in table.schema:
        if pa.types.is_nested(field.type):
            problems.append(f"column {field.name!r} is {field.type}: a companion table is flat")
        elif (fix := _fix(field.type)) and not pa.types.is_date32(field.type):
            problems.append(f"column {field.name!r} is {field.type}: {fix}")
    refuse(f"companion table {name!r}", problems)


NESTING_MAX = 60
"""Arrow's stream format has at most 64 levels, some of them around `data`."""

_MARKED = {
    "variant": "write it as text with F.to_json(...)",
    "geometry": "encode it with F.base64(F.st_asbinary(...))",
    "geography": "encode it with F.base64(F.st_asbinary(...))",
}


def refuse(table: str, problems: list[str], what_now: str = COMES_AGAIN) -> None:
    """Raise `SchemaMismatch` if there are problems: what is wrong with a column, and its fix."""
    if problems:
        raise SchemaMismatch(f"{table}: {'; '.join(problems)}. {what_now}")


def _problems(schema: pa.Schema, columns: Mapping[str, _Column], elsewhere: str) -> Iterator[str]:
    yield from _duplicate_names(schema.names)
    by_case = {name.lower(): name for name in schema.names}
    for name, column in columns.items():
        if name in schema.names:
            type_ = schema.field(schema.names.index(name)).type
            if not column.fits(type_):
                yield f"column {name!r} is {type_}, expected {column.expected}: {column.fix}"
        elif name in by_case:
            yield f"column {by_case[name]!r} must be spelled {name!r}: rename it"
        elif column.required:
            yield f"column {name!r} ({column.expected}) is missing: {column.fix}"
    for name in schema.names:
        if name.lower() not in columns:
            yield f"column {name!r} is not known here: {elsewhere}"


def _duplicate_names(names: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            yield f"column {name!r} is there twice (names differ in more than case): drop one"
        seen.add(name.lower())


def _uncanonical(type_: pa.DataType, path: str, levels: int = NESTING_MAX) -> Iterator[str]:
    if not levels:
        yield f"{path[:100]}... is nested in more than {NESTING_MAX} levels: flatten it"
    elif marked := _marked(type_):
        yield f"{path} is {marked}: {_MARKED[marked]}"
    elif pa.types.is_struct(type_):
        names = [field.name for field in type_]
        yield from (f"{path}.{name}: two fields of this name" for name in _repeated(names))
        for field in type_:
            inner = f"{path}.{field.name}"
            if "\x00" in field.name:
                yield f"{inner!r}: a field's name holds a NUL character: rename it"
            else:
                yield from _uncanonical(field.type, inner, levels - 1)
    elif _is_list(type_):
        yield from _uncanonical(type_.value_type, f"{path}[]", levels - 1)
    elif fix := _fix(type_):
        yield f"{path} is {type_}: {fix}"


def _marked(type_: pa.DataType) -> str | None:
    """Return the name of a Spark type that Arrow holds as a struct with a mark on a field."""
    if not pa.types.is_struct(type_):
        return None
    marks = {mark for field in type_ for mark in field.metadata or ()}
    return next((name for name in _MARKED if name.encode() in marks), None)


def _repeated(names: list[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _fix(type_: pa.DataType) -> str | None:
    """Return the correction for a type without a canonical form; None for one that has it."""
    types = pa.types
    known = (_is_text, types.is_integer, types.is_boolean, types.is_null, _is_instant)
    if any(test(type_) for test in known):
        return None
    for test, fix in (
        (types.is_floating, "floats round; send integer minor units, or a string"),
        (types.is_decimal, "send integer minor units, or cast it to string"),
        (types.is_timestamp, "cast it to timestamp (microseconds, with a time zone)"),
        (types.is_map, "its order is not fixed; send a struct, or an array of structs"),
        (types.is_binary, "encode it with F.base64(...)"),
    ):
        if test(type_):
            return fix
    return "cast it to string"
