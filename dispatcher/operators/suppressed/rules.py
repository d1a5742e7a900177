"""An overtaken decision that is written after all: as which entry, and when not. Pure."""

from collections.abc import Mapping
from typing import Any

from holdfast.dispatcher.operators.reissue.rules import entry_text, parts_of
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import SuppressedCause


def new_key_of(key: Key) -> Key:
    """Return the key under which a suppressed decision is written, derived from the old one."""
    return Key.of(parts_of(key, 1))


def text_of(decision: Mapping[str, Any]) -> str:
    """Return the entry of a suppressed decision, as JSON text for the sink."""
    return entry_text(
        {**decision, "body": f'{{"data":{decision["data"]}}}'}, parts_of(_key(decision), 1)
    )


def write_command(key: str) -> str:
    """Return the command that proposes to write a suppressed decision."""
    return f"holdfast suppressed write --reason TEXT {key}"


def state_json(state: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return a transition state as in a proposal; `updated_at` reveals every change by the sink."""
    if state is None:
        return None
    times = {name: rfc3339(state[name]) for name in ("last_occurred_at", "updated_at")}
    return {"stream": state["stream"], "last_type": state["last_type"], **times}


def require_writable(decision: Mapping[str, Any]) -> None:
    """Raise `CommandError` when a suppressed decision must not be written in the present state."""
    key, state = decision["key"], decision["state"]
    if decision["cause"] != SuppressedCause.OVERTAKEN:
        raise CommandError(
            f"{key} repeats the decision before it (cause {decision['cause']}): to write it would"
            " change nothing at any receiver. Nothing was changed.",
            code="changes_nothing",
        )
    if decision["written_as"] is not None:
        raise CommandError(
            f"{key} was written already, as {decision['written_as']}. Nothing was changed; see"
            f" `holdfast entry show {decision['written_as']}`. If an approved proposal of it is"
            " still open, apply it, which records the write: `holdfast proposal list`.",
            code="already_written",
        )
    if state is None:
        return
    if state["last_occurred_at"] > decision["occurred_at"]:
        raise CommandError(
            f"the transition state in {state['stream']} is of"
            f" {rfc3339(state['last_occurred_at'])}, after this decision of"
            f" {rfc3339(decision['occurred_at'])}. Nothing was changed. If the state is ahead of"
            " the clock, repair the subject first (`holdfast subject repair`); otherwise a later"
            " decision was written, and this one is obsolete.",
            code="decision_obsolete",
        )
    if state["last_type"] == decision["type"]:
        raise CommandError(
            f"the last decision in {state['stream']} is of type {decision['type']} too: to write"
            f" {key} would change nothing at any receiver. Nothing was changed.",
            code="changes_nothing",
        )


def obsolete(decision: Mapping[str, Any], seen: Mapping[str, Any]) -> CommandError:
    """Return the error for a decision after which later ones of its subject were suppressed."""
    last = seen["newest_later"]
    return CommandError(
        f"{decision['key']} is not the newest: later decisions of its subject were suppressed too"
        f" ({seen['later']}), the newest {last['type']} of {last['occurred_at']} ({last['key']},"
        f" {last['cause']}), which is the subject's current decision. Nothing was changed; to write"
        " this one all the same, propose it with --despite-later (despite_later).",
        code="later_decision_exists",
    )


def _key(decision: Mapping[str, Any]) -> Key:
    return Key.parse(decision["key"])
