"""Whether bytes are Avro binary of a schema, by the letter of the specification.

fastavro takes an index of -1 for the last branch or symbol, reads a varint of any length, and an
`int` beyond 32 bits. Such bytes are damaged, and what they would be read as may be an amount.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

NESTING_MAX: Final = 64
"""Types within types: fastavro reads with a C function for each, and no limit of its own."""

FREE_MAX: Final = 100
"""Values without bytes in a value: a short schema can double them with each of its types."""


class SchemaUnusable(Exception):
    """A schema with which no record can be read. The text is that of the fault."""


End = Callable[[bytes, int], int]
"""Returns where a value ends that begins at a position; raises IndexError or ValueError."""


class Layout(NamedTuple):
    """How the values of a type are encoded."""

    end: End
    least: int
    """Bytes that a value has at least."""
    depth: int = 1
    """Types within it, itself included."""
    free: int = 0
    """Values without bytes that it has at most beside one for each of its bytes."""


def layout(parsed: Any) -> Layout:
    """Return the layout of a schema that fastavro has parsed.

    Raises SchemaUnusable for a schema of which a few bytes may end the process: one that is
    recursive or deep, or has an array or many of what takes no bytes. Raises KeyError or TypeError
    for what is no schema.
    """
    return _layout(parsed, {})


def _layout(kind: Any, named: dict[str, Layout]) -> Layout:
    match kind:
        case str():
            if kind in _PRIMITIVES:
                return _PRIMITIVES[kind]
            if kind not in named:
                # fastavro has found its definition, so this reference is within it.
                raise SchemaUnusable("its schema is recursive")
            return named[kind]
        case list():
            branches = [_layout(each, named) for each in kind]
            least = 1 + min((each.least for each in branches), default=0)
            # The byte of the index pays for one.
            free = max([0, *(each.free - 1 for each in branches)])
            return _deeper(_union([each.end for each in branches]), least, branches, free)
        case {"type": "record" | "error", "name": name, "fields": fields}:
            parts = [_layout(each["type"], named) for each in fields]
            least = sum(each.least for each in parts)
            free = sum(each.free for each in parts) + (not least)
            found = _deeper(_record([each.end for each in parts]), least, parts, free)
        case {"type": "enum", "name": name, "symbols": list(symbols)}:
            found = Layout(_enum(len(symbols)), 1)
        case {"type": "fixed", "name": name, "size": int(size)} if size >= 0:
            found = Layout(_fixed(size), size, free=not size)
        case {"type": "array", "items": items}:
            item = _layout(items, named)
            if not item.least:
                raise SchemaUnusable("its schema has an array of items without bytes")
            return _deeper(_blocks(item.end), 1, [item])
        case {"type": "map", "values": values}:
            item = _layout(values, named)
            return _deeper(_blocks(_record([_text, item.end])), 1, [item])
        case {"type": str(base)} if base in _PRIMITIVES:
            return _PRIMITIVES[base]
        case _:
            raise TypeError
    named[name] = found
    return found


def _deeper(end: End, least: int, parts: Sequence[Layout], free: int = 0) -> Layout:
    depth = 1 + max((each.depth for each in parts), default=0)
    if depth > NESTING_MAX:
        raise SchemaUnusable("its schema is nested too deeply")
    if free > FREE_MAX:
        raise SchemaUnusable("its schema has too many values without bytes")
    return Layout(end, least, depth, free)


def _number(body: bytes, at: int, bits: int) -> tuple[int, int]:
    """Return a number in zigzag encoding, and where it ends."""
    byte = body[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    found, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift >= bits:
            raise ValueError
        byte = body[at]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
    if found >> bits:
        raise ValueError
    return (found >> 1) ^ -(found & 1), at


def _long(body: bytes, at: int) -> int:
    return at + 1 if body[at] < 0x80 else _number(body, at, 64)[1]


def _int(body: bytes, at: int) -> int:
    return at + 1 if body[at] < 0x80 else _number(body, at, 32)[1]


def _text(body: bytes, at: int) -> int:
    length, at = _number(body, at, 64)
    if not 0 <= length <= len(body) - at:
        raise ValueError
    return at + length


def _boolean(body: bytes, at: int) -> int:
    if body[at] > 1:
        raise ValueError
    return at + 1


def _fixed(size: int) -> End:
    def end(body: bytes, at: int) -> int:
        if size > len(body) - at:
            raise ValueError
        return at + size

    return end


def _enum(symbols: int) -> End:
    def end(body: bytes, at: int) -> int:
        index, at = _number(body, at, 32)
        if not 0 <= index < symbols:
            raise ValueError
        return at

    return end


def _union(branches: Sequence[End]) -> End:
    def end(body: bytes, at: int) -> int:
        index, at = _number(body, at, 64)
        if index < 0:
            raise ValueError
        return branches[index](body, at)

    return end


def _record(parts: Sequence[End]) -> End:
    def end(body: bytes, at: int) -> int:
        for part in parts:
            at = part(body, at)
        return at

    return end


def _blocks(item: End) -> End:
    """Return the end of an array or a map: blocks of items, the last of none."""

    def end(body: bytes, at: int) -> int:
        while True:
            count, at = _number(body, at, 64)
            if not count:
                return at
            until = None
            if count < 0:
                # The size of the block in bytes follows.
                size, at = _number(body, at, 64)
                until = at + size
            for _ in range(abs(count)):
                at = item(body, at)
            if until not in (None, at):
                raise ValueError

    return end


_PRIMITIVES: Final[Mapping[str, Layout]] = {
    "null": Layout(_fixed(0), 0, free=1),
    "boolean": Layout(_boolean, 1),
    "int": Layout(_int, 1),
    "long": Layout(_long, 1),
    "float": Layout(_fixed(4), 4),
    "double": Layout(_fixed(8), 8),
    "bytes": Layout(_text, 1),
    "string": Layout(_text, 1),
}
