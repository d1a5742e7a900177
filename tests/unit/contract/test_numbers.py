"""Numbers and durations that people type: digits, and nothing else, in every command."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from holdfast.dispatcher.api.requests import Limit
from holdfast.dispatcher.cli.endpoints.settings import _schedule, _seconds
from holdfast.dispatcher.cli.main import command
from holdfast.dispatcher.cli.workbench.options import seconds_of
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.numbers import _form, milliseconds, whole_number
from holdfast.sink.contract.retention import whole_days
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
        ("s", lambda given: _seconds("--budget", given)),
        ("s", lambda given: seconds_of("--delay", given)),
        ("", _schedule),
        ("", lambda given: _schedule(f"5,{given}")),
    ):
        with pytest.raises((ValueError, CommandError, typer.BadParameter)):
            parse(text + unit)


def _numeric(node: Any) -> Iterator[tuple[Any, Any]]:
    yield from ((node, each) for each in node.params if _form(each) is not None)
    for each in getattr(node, "commands", {}).values():
        yield from _numeric(each)


@pytest.mark.parametrize("text", MISTYPED)
def test_no_command_takes_a_mistyped_number(text: str) -> None:
    found = list(_numeric(command([])))
    assert len(found) > 60, "every command is here"
    for node, parameter in found:
        several = parameter.multiple or parameter.nargs == -1
        with pytest.raises(typer.BadParameter):
            parameter.process_value(typer.Context(node), [text] if several else text)


def test_numbers_of_digits_are_taken_as_before() -> None:
    assert (whole_number("042"), _schedule("5, 30,120")) == (42, [5, 30, 120])
    assert (milliseconds("90 s"), whole_days("90d"), mebibytes("2G")) == (90_000, 90, 2048)
    node = command(["dispatch"])
    [stop] = [each for _, each in _numeric(node) if each.name == "stop_seconds"]
    assert stop.process_value(typer.Context(node), "2.5") == 2.5


@pytest.mark.parametrize("text", ["1_0", "+5", " 5"])
def test_url_of_the_api_takes_digits_alone(text: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    with pytest.raises(ValidationError):
        TypeAdapter(Limit).validate_python(text)
    assert TypeAdapter(Limit).validate_python("5") == 5
