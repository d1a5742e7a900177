"""The syntax of options and settings, and the revisions that a version works on."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from holdfast.dispatcher.api.requests import Limit
from holdfast.dispatcher.api.routes.endpoints import Types
from holdfast.dispatcher.cli.endpoints.settings import _schedule, _seconds
from holdfast.dispatcher.cli.main import command
from holdfast.dispatcher.cli.workbench.options import seconds_of
from holdfast.dispatcher.operators.endpoints.settings import SETTINGS
from holdfast.dispatcher.operators.subjects.rules import By, state_after
from holdfast.dispatcher.workbench.conform.plan import plan_of
from holdfast.dispatcher.workbench.listen.sample import compose
from holdfast.receiver import Secret, VerificationError
from holdfast.receiver.message.body import parse_body
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.numbers import _form, milliseconds, whole_days, whole_number
from holdfast.sink.contract.schema import CODE, Code, misfit
from holdfast.sink.rows.read_rows import Refused, entry_of, read_rows
from holdfast.spark_app.command.values import mebibytes

MISTYPED = ("1_0", "+5", "\u0661\u0660", "\uff15", "1\u00b2", "0x1", "1e3", "", "5\n", "nan")


@pytest.mark.parametrize("text", MISTYPED)
def test_mistyped_number_is_refused_by_each_parser(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        whole_number(text)
    for unit, parse in (
        ("s", milliseconds),
        ("d", whole_days),
        ("m", mebibytes),
        ("s", lambda text: _seconds("--budget", text)),
        ("s", lambda text: seconds_of("--delay", text)),
        ("", _schedule),
        ("", lambda text: _schedule(f"5,{text}")),
    ):
        with pytest.raises((ValueError, CommandError, typer.BadParameter)):
            parse(text + unit)


def _numeric(node: Any) -> Iterator[tuple[Any, Any]]:
    yield from ((node, each) for each in node.params if _form(each) is not None)
    for each in getattr(node, "commands", {}).values():
        yield from _numeric(each)


@pytest.mark.parametrize("text", MISTYPED)
def test_no_command_takes_a_mistyped_number(text: str) -> None:
    results = list(_numeric(command()))
    assert len(results) > 60, "every command is here"
    for node, parameter in results:
        several = parameter.multiple or parameter.nargs == -1
        with pytest.raises(typer.BadParameter):
            parameter.process_value(typer.Context(node), [text] if several else text)


def test_numbers_of_digits_are_taken_as_before() -> None:
    assert (whole_number("042"), _schedule("5, 30,120")) == (42, [5, 30, 120])
    assert (milliseconds("90 s"), whole_days("90d"), mebibytes("2G")) == (90_000, 90, 2048)
    node = command("dispatch")
    [stop] = [each for _, each in _numeric(node) if each.name == "stop_seconds"]
    assert stop.process_value(typer.Context(node), "2.5") == 2.5


@pytest.mark.parametrize("text", ["1_0", "+5", " 5"])
def test_url_of_the_api_takes_only_digits(text: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    with pytest.raises(ValidationError):
        TypeAdapter(Limit).validate_python(text)
    assert TypeAdapter(Limit).validate_python("5") == 5


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
    "the types of an endpoint": lambda text: SETTINGS["types"].check([text]),
    "the types of an endpoint in the API": lambda text: TypeAdapter(Types).validate_python([text]),
    "subject repair": _repaired,
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


REVISIONS = st.integers(0, 9999).map("{:04}".format)


@st.composite
def codes(draw: st.DrawFn) -> Code:
    works_from, revision = sorted((draw(REVISIONS), draw(REVISIONS)))
    return Code(revision, works_from)


@st.composite
def databases(draw: st.DrawFn) -> tuple[str, str]:
    serves_from, revision = sorted((draw(REVISIONS), draw(REVISIONS)))
    return revision, serves_from


@given(databases(), codes())
def test_overlapping_ranges_accept_a_session(database: tuple[str, str], code: Code) -> None:
    revision, serves_from = database
    accepted = code.revision >= serves_from and revision >= code.works_from
    assert (misfit(revision, serves_from, code) is None) == accepted


@given(databases(), codes())
def test_refusal_names_both_ranges_and_what_to_do(database: tuple[str, str], code: Code) -> None:
    reason = misfit(*database, code)
    if reason is None:
        return
    for each in (*database, code.revision, code.works_from):
        assert each in reason
    newer_code = code.revision >= database[1]
    assert ("holdfast db upgrade" in reason) == newer_code
    assert ("upgrade this process" in reason) != newer_code


@pytest.mark.parametrize(
    ("revision", "serves_from", "accepted"),
    [
        ("0033", "0032", True),  # expanded: the older code goes on
        ("0033", None, False),  # before 0032: only the code that was built for it, or later
        ("0032", None, True),
        ("0031", None, True),  # code first, database later
        ("0030", None, False),
        ("0034", "0033", False),  # contracted
        (None, None, False),
    ],
)
def test_code_built_for_0032_that_works_from_0031_on(
    revision: str | None, serves_from: str | None, accepted: bool
) -> None:
    assert (misfit(revision, serves_from, Code("0032", "0031")) is None) == accepted


def test_this_version_works_on_the_revision_for_which_it_was_built() -> None:
    assert CODE.works_from <= CODE.revision
    assert misfit(CODE.revision, CODE.revision) is None
