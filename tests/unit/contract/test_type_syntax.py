"""One definition of a type: whatever reads one accepts and refuses the same texts."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from holdfast.dispatcher.api.routes.endpoints import Types
from holdfast.dispatcher.operators.endpoints.rules import CHECKS
from holdfast.dispatcher.operators.subjects.rules import By, state_after
from holdfast.dispatcher.workbench.conform.plan import plan_of
from holdfast.dispatcher.workbench.listen.sample import compose
from holdfast.receiver import Secret, VerificationError
from holdfast.receiver.message.body import parse_body
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.rows.entry import Refused, entry_of
from holdfast.sink.rows.read_rows import read_rows

AT = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
TYPES = {
    "payout_hold.block": True,
    "A": True,
    "0._.z": True,
    "a" * 128: True,
    "a" * 129: False,
    "": False,
    ".": False,
    ".a": False,
    "a.": False,
    "a..b": False,
    "a b": False,
    "a-b": False,
    "a\n": False,
    "\u00e9": False,
    "hold.\u0661": False,
}


def _read_as_a_column(text: str) -> None:
    row = {"subject": "m", "type": text, "key": ["k"], "data": {"n": 1}}
    table = pa.Table.from_pylist([row]).append_column("occurred_at", pa.array([AT]))
    if refused := read_rows(table).refused:
        raise ValueError(refused[0].reason)


def _received(text: str) -> None:
    members = {"type": text, "timestamp": "2026-11-02T12:15:00Z", "sequence": 1}
    parse_body(json.dumps(members | {"key": f"hf_{'0' * 32}", "data": {}}).encode())


def _repaired(text: str) -> None:
    state = {"ahead": True, "latest": AT, "stored_type": None, "stored_occurred_at": None}
    assert state_after(state, By(text, AT)) is not None


READERS: dict[str, Callable[[str], object]] = {
    "a row of the sink": lambda text: entry_of("m", text, ["k"], 0, {}, 0, None),
    "a column of the sink": _read_as_a_column,
    "the kit": _received,
    "the types of an endpoint": lambda text: CHECKS["types"]([text]),
    "the types of an endpoint in the API": lambda text: TypeAdapter(Types).validate_python([text]),
    "subjects repair": _repaired,
    "trigger": lambda text: compose(text, subject="m", sequence=1, data=None, changes=[]),
    "conform": lambda text: plan_of(
        "http://127.0.0.1/", [Secret(bytes(32))], seed=1, type_=text, data=b'{"s":"{subject}"}'
    ),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", TYPES, ids=ascii)
def test_every_reader_of_a_type_agrees(reader: str, text: str) -> None:
    try:
        READERS[reader](text)
    except (ValueError, Refused, VerificationError, CommandError):
        accepted = False
    else:
        accepted = True
    assert accepted == TYPES[text]
