"""The operators' SQL statements: `replays/add` is the section `add` of their `statements.sql`."""

from holdfast.sink.contract import statements


def statement(name: str) -> bytes:
    """Return a verb's statement, or one that the engine has too for a name without a verb."""
    verb, slash, section = name.partition("/")
    package = f"holdfast.dispatcher.operators.{verb}" if slash else "holdfast.dispatcher.shared"
    return statements.statement(package, section if slash else name)
