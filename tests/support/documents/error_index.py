"""The index of errors, written from the code: `make errors` puts it into docs/reference/errors.md.

Codes have the texts of their errors, exceptions what their docstring says before its example, and
reasons and outcomes the docstring of their member.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Any

from holdfast import receiver, sink, testing
from holdfast.receiver.errors import Reason, ReceiverError
from holdfast.sink.contract.requeue import Outcome as PutBack
from holdfast.sink.contract.states import (
    DeadReason,
    LateReason,
    Outcome,
    QuarantineReason,
    SuppressedCause,
)
from holdfast.sink.contract.wire import RECEIPT_STATUS, ReceiptOutcome
from holdfast.sink.errors import Permanent, SinkError, Transient
from holdfast.spark_app.lifecycle.failure import Cause
from tests.support.documents.errors import (
    CAUSE,
    OF_THE_COMMAND,
    ROOT,
    SNAPSHOT,
    Error,
    errors,
    lines,
)

PAGE = ROOT / "docs" / "reference" / "errors.md"

TITLES = {"1": "failed", "2": "usage", "3": "nothing matched", "4": "degraded"}

_OF_THE_COMMAND_TEXTS = {
    "aborted": "you answered no, or pressed Ctrl-C. Nothing was changed.",
    "system_error": "an error of the operating system, such as a full disk. What was committed"
    " before is kept; see `holdfast status`.",
    "usage": "the command line cannot be parsed. Nothing was changed; see `--help`.",
}

_ENUMS: dict[str, tuple[str, type[Enum]]] = {
    "Outcomes of an attempt": (
        ("What became of one request. Every attempt is kept (`holdfast attempt list`)."),
        Outcome,
    ),
    "Reasons of a dead letter": (
        (
            "The decision is kept and is not sent again until a person decides. With the"
            " order policy `stop` later decisions of its subject wait."
        ),
        DeadReason,
    ),
    "Answers of a receiver": (
        (
            "The `outcome` of an answer, and its status."
            " [PROTOCOL](../receivers/PROTOCOL.md#3-answers) has what the sender does then."
        ),
        ReceiptOutcome,
    ),
    "Reasons of a receiver that refuses": (
        (
            "Nothing was applied. The `reason` of the problem that it answers; the decision"
            " stays in the outbox. [PROTOCOL](../receivers/PROTOCOL.md#2-verification) has the"
            " status of each."
        ),
        Reason,
    ),
    "Reasons of the quarantine": (
        (
            "The row is kept as it came and made no decision."
            " [Set aside](../operators/set-aside.md) has how it is corrected and put back."
        ),
        QuarantineReason,
    ),
    "What becomes of a row that is put back": (
        ("The outcome of `quarantine requeue` for each row; one that is not `written` stays open."),
        PutBack,
    ),
    "Causes of a suppressed decision": (
        (
            "The decision is recorded and no entry is written. `holdfast suppressed show KEY`"
            " has it."
        ),
        SuppressedCause,
    ),
    "Reasons of a late event": (
        ("The event is kept and was not applied (`holdfast late-event list`)."),
        LateReason,
    ),
    "Causes of a restart of the job": (
        (
            "Nothing is lost: the batch is in the checkpoint and is replayed. The label"
            " `cause` of the [restarts](metrics.md#the-job)."
        ),
        Cause,
    ),
}


def page(found: list[Error]) -> str:
    """Return the page: its introduction as it stands, then everything from the code."""
    begin, _, _ = PAGE.read_text().partition("\n## ")
    sections = [*_codes(found), *_exceptions(), *map(_enum, _ENUMS)]
    return "\n\n".join([begin.rstrip("\n"), *sections]) + "\n"


def _codes(found: list[Error]) -> Iterator[str]:
    codes: dict[tuple[str, str], set[str]] = {
        (exit_code, code): {_OF_THE_COMMAND_TEXTS[code]}
        for code, exit_code in OF_THE_COMMAND.items()
    }
    for error in found:
        if error.code != CAUSE:
            codes.setdefault((error.exit_code, str(error.code)), set()).add(error.text)
    for exit_code, title in TITLES.items():
        yield f"## {exit_code}: {title}"
        for code in sorted(code for of, code in codes if of == exit_code):
            texts = sorted({_shown(each) for each in codes[exit_code, code]} - {""})
            yield "\n".join([f"### `{code}`", "", *(f"- {text}" for text in texts or [_WHOLE])])


_WHOLE = "The text is that of what caused it."


def _shown(text: str) -> str:
    """Return a text as Markdown, empty where nothing of it stands in the code.

    >>> _shown("no stream is called {}; see `holdfast stream list`.")
    'no stream is called …; see `holdfast stream list`.'
    """
    if not re.search(r"[A-Za-z]{2}", text):
        return ""
    text = re.sub("…+", "…", text.replace("\\n", " ").replace("{}", "…"))
    outside = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<*\[\]_])", r"\\\1", part) for part in outside
    )


def _exceptions() -> Iterator[str]:
    yield "## Exceptions of the sink"
    yield (
        "From `holdfast.sink`. Nothing is lost: Spark replays the batch from its checkpoint, and"
        " the ledger knows what is written. *Start again?* says whether a restart may succeed"
        " without anybody; otherwise it fails in the same way, and a person acts first. A subclass"
        " of `Permanent` or `Transient` that [`also`](../spark/sink.md#also) raises counts as its"
        " base."
    )
    yield _table(["exception", "start again?", "what happened, and what to do"], _of_sink())
    yield "## Exceptions of the receiver kit"
    yield (
        "From `holdfast.receiver`. Key and action commit together or not at all, and the sender"
        " sends a delivery that was not answered 2xx again."
    )
    yield _table(["exception", "what happened, and what to do"], _of(receiver, ReceiverError))
    yield "## Exceptions of the test kit"
    yield "From `holdfast.testing`."
    yield _table(["exception", "what happened"], _of(testing, AssertionError))


def _of_sink() -> Iterator[list[str]]:
    for name, text in _of(sink, SinkError):
        class_ = getattr(sink, name.strip("`"))
        if class_ not in (SinkError, Permanent, Transient):
            yield [name, "yes" if issubclass(class_, Transient) else "no", text]


def _of(package: Any, base: type[Exception]) -> Iterator[list[str]]:
    for name in package.__all__:
        each = getattr(package, name)
        if isinstance(each, type) and issubclass(each, base):
            yield [f"`{name}`", _cell(_prose(each))]


def _prose(each: Any) -> str:
    """Return what a docstring says before its example."""
    return (inspect.getdoc(each) or "").partition(">>>")[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _enum(title: str) -> str:
    intro, enum = _ENUMS[title]
    said = _members(enum)
    rows = [[f"`{each.value}`", _cell(said.get(each.name, ""))] for each in enum]
    head = ["", "meaning"]
    if enum is ReceiptOutcome:
        head = ["", "status", "meaning"]
        rows = [
            [row[0], str(RECEIPT_STATUS[each]), row[1]]
            for row, each in zip(rows, ReceiptOutcome, strict=True)
        ]
    return f"## {title}\n\n{intro}\n\n{_table(head, rows)}"


def _members(enum: type[Enum]) -> dict[str, str]:
    """Return the docstring below each member."""
    [class_] = ast.parse(inspect.getsource(enum)).body
    assert isinstance(class_, ast.ClassDef)
    said: dict[str, str] = {}
    for before, node in zip(class_.body, class_.body[1:], strict=False):
        match before, node:
            case (
                ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                said[name] = text
    return said


def undescribed() -> list[str]:
    """Return the exceptions and members that the page names and the code does not explain."""
    enums = [
        f"{enum.__name__}.{each.name}"
        for _, enum in _ENUMS.values()
        for each in enum
        if not _members(enum).get(each.name)
    ]
    bases = {sink: SinkError, receiver: ReceiverError, testing: AssertionError}
    return enums + [
        name for package, base in bases.items() for name, text in _of(package, base) if not text
    ]


def _table(head: list[str], rows: Any) -> str:
    lines_ = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines_).replace("|  |", "| |")


def _record() -> None:
    found = errors()
    if faults := [fault for error in found if (fault := error.fault()) is not None]:
        sys.exit("\n".join(faults))
    SNAPSHOT.write_text("".join(f"{line}\n" for line in lines(found)))
    PAGE.write_text(page(found))


if __name__ == "__main__":
    _record()
