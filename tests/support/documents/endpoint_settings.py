"""The page of an endpoint's settings, written from their table.

`make settings` writes it to `docs/reference/endpoint-settings.md`.
"""

import json
from pathlib import Path

from holdfast.dispatcher.operators.endpoints.settings import SETTINGS, Form, Setting

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "endpoint-settings.md"

_HEAD = "| setting | option | value | default | meaning |\n|---|---|---|---|---|\n"
_UNITS = {Form.MILLISECONDS: " ms", Form.SECONDS: " s", Form.NUMBER: ""}
_OPTION_UNITS = {
    Form.MILLISECONDS: ", in seconds",
    Form.SECONDS: ", as `90s`, `5m`, `12h` or `5d`",
    Form.DELAYS: ", in seconds with commas",
}
"""How an option is written, where not as the value in JSON."""


def page() -> str:
    """Return the page with a row for each setting."""
    begin, _, _ = PAGE.read_text().partition(_HEAD)
    return begin + _HEAD + "".join(map(_row, SETTINGS.values()))


def _row(setting: Setting) -> str:
    default = "" if setting.default is None else f"`{json.dumps(setting.default)}`"
    cells = (
        f"`{setting.column}`",
        f"`{setting.option}`{_OPTION_UNITS.get(setting.form, '')}",
        _value(setting),
        "required" if setting.required else default,
        setting.help,
    )
    return f"| {' | '.join(cells)} |\n"


def _value(setting: Setting) -> str:
    least, most = (f"{limit:,}" for limit in setting.limits)
    match setting.form:
        case Form.CHOICE:
            return " or ".join(f"`{each.value}`" for each in setting.choices)
        case Form.DELAYS:
            return f"list of {least} to {most} s"
        case Form.NUMBER | Form.MILLISECONDS | Form.SECONDS as form:
            return f"{least} to {most}{_UNITS[form]}"
        case form:
            return form.value


if __name__ == "__main__":
    PAGE.write_text(page())
