"""The examples in the docstrings of the public names are run, each on a database of its own."""

import doctest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from holdfast import sink
from holdfast.sink.foreach_batch import Identity
from tests.support.dispatch.sender import SCHEMA, decision, table

QUERY, OTHER = UUID(int=1), UUID(int=2)
IN_SPARK = {"OutboxSink"}
"""Run by tests/spark/test_outbox_sink_example.py."""


def _checkpoint(folder: Path) -> str:
    """What Spark has written after two batches."""
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    for log in ("offsets", "commits"):
        (folder / log).mkdir()
        for number in (0, 1):
            (folder / log / str(number)).write_text("v1\n")
    return str(folder)


def _unreadable(folder: Path) -> str:
    """A folder where the file `metadata` cannot be read as one."""
    (folder / "metadata").mkdir(parents=True)
    return str(folder)


@pytest.fixture
def make_sink() -> Iterator[Callable[..., sink.OutboxSink]]:
    """Stands for `OutboxSink`: a short example leaves its connection to the end of the program."""
    made: list[sink.OutboxSink] = []

    def make(*args: Any, **settings: Any) -> sink.OutboxSink:
        made.append(sink.OutboxSink(*args, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def names(dsn: str, make_sink: Callable[..., sink.OutboxSink], tmp_path: Path) -> dict[str, Any]:
    """What the names in the examples stand for."""
    rows = table(decision("m_1"), decision("m_2"))
    nameless = rows.set_column(0, "subject", pa.array([None, ""], SCHEMA.field("subject").type))
    return {
        **{name: getattr(sink, name) for name in sink.__all__},
        "OutboxSink": make_sink,
        "pa": pa,
        "Identity": Identity,
        "dsn": dsn,
        "read_only_dsn": f"{dsn} options='-c default_transaction_read_only=on'",
        "query_id": QUERY,
        "other_query_id": OTHER,
        "first_run": UUID(int=3),
        "second_run": UUID(int=4),
        "decisions": rows,
        "without_subjects": nameless,
        "checkpoint_with_two_batches": _checkpoint(tmp_path),
        "unreadable_checkpoint": _unreadable(tmp_path / "unreadable"),
    }


@pytest.mark.parametrize("name", sorted(set(sink.__all__) - IN_SPARK))
def test_example_of(name: str, names: dict[str, Any]) -> None:
    public = getattr(sink, name)
    assert public.__doc__
    test = doctest.DocTestParser().get_doctest(public.__doc__, names, name, None, 0)
    assert test.examples, f"{name} has no example"
    texts: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(test, out=texts.append)
    assert not texts, "".join(texts)
