"""SQL statements by name: the sections of the files beside a store.

A file has several statements, each below a line `-- name: claim` and a comment with what it
guarantees and the index that it needs. A long one has a file of its own. What many statements ask
stands once, in `FRAGMENTS`: `$takes_stream(p.id, e.batch_no)`.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files

_SECTION = re.compile(rb"^-- name: (\w+)\n", re.MULTILINE)
_FRAGMENT = re.compile(rb"\$(\w+)\(((?:%\(\w+\)s|[\w.:, ])+)\)")

# Before revision 0034 `endpoint` has no `streams`: the name alone is then that of `older`. `id > 0`
# has the index read where a session may not scan tables.
_OLDER = b"(VALUES ('{}'::text[])) AS older (streams)"
_CHOOSING = (
    b"ARRAY(SELECT choosing.id FROM " + _OLDER + b" CROSS JOIN LATERAL"
    b" (SELECT id FROM holdfast.endpoint WHERE id > 0 AND streams <> '{}') AS choosing)"
)
_STREAMS = (
    b"(SELECT (SELECT streams FROM holdfast.endpoint AS own WHERE own.id = %b) FROM "
    + _OLDER
    + b")"
)
_STREAM = (
    b"(SELECT coalesce(named.acts_for, named.name) FROM holdfast.batch AS written"
    b" JOIN holdfast.stream AS named ON named.name = written.stream WHERE written.batch_no = %b)"
)
# Before revision 0038 `lane` has no such column, nor before 0037 the next one.
_ROUTED = b"greatest(%b.last_sequence, (to_jsonb(%b) ->> 'routed_sequence')::bigint)"
_HELD = (
    b"ARRAY(SELECT held.subject_id FROM (VALUES (NULL::timestamptz)) AS older (on_hold_until)"
    b" CROSS JOIN LATERAL (SELECT subject_id FROM holdfast.lane AS stored"
    b" WHERE stored.endpoint_id = %b AND on_hold_until > now()) AS held)"
)
FRAGMENTS: Mapping[bytes, Callable[..., bytes]] = {
    b"streams": lambda endpoint: _STREAMS % endpoint,
    b"chooses": lambda endpoint: b"(%b = ANY (%b))" % (endpoint, _CHOOSING),
    b"stream_of": lambda batch_no: _STREAM % batch_no,
    b"held_at": lambda endpoint: _HELD % endpoint,
    b"on_hold": lambda lane: (
        b"coalesce((to_jsonb(%b) ->> 'on_hold_until')::timestamptz > now(), false)" % lane
    ),
    b"routed": lambda lane: _ROUTED % (lane, lane),
    b"cancelled": lambda lane, sequence: (
        b"coalesce(to_jsonb(%b) -> 'cancelled' @> to_jsonb(%b), false)" % (lane, sequence)
    ),
    b"takes_stream": lambda endpoint, batch_no: (
        b"(%b <> ALL (%b) OR %b = ANY (%b::text[]))"
        % (endpoint, _CHOOSING, _STREAM % batch_no, _STREAMS % endpoint)
    ),
}
"""Of an endpoint's id and a batch's number: the streams that the endpoint takes (none: all),
whether it takes only some, the stream for which the batch was written (by its job or by hand), and
whether the endpoint takes it. Endpoints that take all cost a comparison: the others are read once.

Of an endpoint's id: the subjects on hold there, read once. Of a lane's row: whether its subject is
on hold, and the last sequence that is routed to it. Of a lane's row and a sequence that it has not
passed: whether that is cancelled there.
"""


@cache
def statement(package: str, name: str) -> bytes:
    """Return a statement of a package.

    `claim` is a section of `statements.sql`; `lanes/claim` is one of `sql/lanes.sql`, or the file
    `sql/lanes/claim.sql`. Raises `LookupError` where there is none.
    """
    group, slash, section = name.rpartition("/")
    text = sections(package, f"sql/{group}.sql" if slash else "statements.sql").get(section)
    file = files(package) / "sql" / f"{name}.sql"
    if text is None and slash and file.is_file():
        text = _expanded(file.read_bytes())
    if text is None:
        raise LookupError(f"{package} has no statement {name}")
    return text


@cache
def sections(package: str, path: str) -> Mapping[str, bytes]:
    """Return the statements of a file by name; none for a file that does not exist."""
    file = files(package).joinpath(path)
    parts = _SECTION.split(_expanded(file.read_bytes())) if file.is_file() else [b""]
    texts = [text.strip() + b"\n" for text in parts[2::2]]
    return dict(zip(map(bytes.decode, parts[1::2]), texts, strict=True))


def _expanded(text: bytes) -> bytes:
    return _FRAGMENT.sub(lambda use: FRAGMENTS[use[1]](*use[2].split(b", ")), text)
