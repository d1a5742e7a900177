"""RFC 3339 texts as microseconds, a whole column at once.

The accepted form is RFC 3339 section 5.6 with `T`, `t` or a space, and `Z`, `z` or a numeric
offset: a time without a zone is nobody's time. Digits beyond the microsecond are cut off. A leap
second is refused, as Spark and Arrow refuse it.
"""

import re
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from spark_app.exposure.schema import TIMESTAMP

# What Arrow reads by itself and means the same by: years from 1000, at most six digits of a second.
_PLAIN = (
    r"^[1-9]\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
    r"(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$"
)
_FORM = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_column(texts: pa.Array) -> pa.Array:
    """Read a column of texts; null where the text is null or is not an RFC 3339 time."""
    if pc.all(pc.match_substring_regex(texts, _PLAIN)).as_py() is not False:
        try:
            return texts.cast(TIMESTAMP)
        except pa.ArrowInvalid:
            pass  # a day such as 30 February: the texts are read one by one to find it
    return pa.array(
        [None if text is None else parse(text) for text in texts.to_pylist()], TIMESTAMP
    )


def parse(text: str) -> int | None:
    """Read one text; microseconds since 1970-01-01 UTC, or None when it is not an RFC 3339 time."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, sign, hours, minutes = match.groups()
    try:
        local = datetime.fromisoformat(f"{day}T{clock}+00:00")
    except ValueError:
        return None
    # Integers all the way: an offset may lead out of the years that datetime can hold.
    elapsed = local - _EPOCH
    seconds = elapsed.days * 86_400 + elapsed.seconds
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds -= offset if sign == "+" else -offset
    return seconds * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))
