"""The settings of an endpoint, for a person."""

from collections.abc import Mapping
from typing import Any

from dispatcher.cli.common.shown import plain


def said(value: Any) -> str:
    """Return a setting's value; `-` for none and for an empty list."""
    match value:
        case list():
            return ", ".join(plain(each) for each in value) or "-"
        case dict():
            return ", ".join(f"{key}={plain(each)}" for key, each in value.items()) or "-"
        case _:
            return plain(value)


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each setting that is different."""
    return [
        f"{column.replace('_', ' ')}: {said(value)} -> {said(after[column])}"
        for column, value in before.items()
    ]
