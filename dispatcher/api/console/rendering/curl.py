"""An entry's request as a `curl` command. Pure.

The signature and the values of configured headers are redacted.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.dispatcher.outbound.operator_headers import joined
from holdfast.dispatcher.outbound.request import Composer, Headers
from holdfast.sink.contract.shell import shell_word
from holdfast.sink.contract.states import EnvelopeStyle
from holdfast.sink.contract.wire import WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP

LEFT_OUT = "REDACTED"
"""In place of a signature or a token, so that a receiver refuses the request as it stands."""


class Copy(NamedTuple):
    """A command that sends what the dispatcher sends to one endpoint, unsigned."""

    endpoint: str
    command: str


def copy_of(entry: Mapping[str, Any], endpoint: Mapping[str, Any]) -> Copy:
    """Return the request for a row of `Entries.entry` to an endpoint as a `curl` command."""
    custom: Headers = tuple((name, LEFT_OUT) for name in sorted(joined(endpoint)))
    composer = Composer("holdfast", EnvelopeStyle(endpoint["envelope"]), custom)
    request = composer.compose(
        key=entry["key"],
        subject_id=entry["subject_id"],
        timestamp=0,
        signature=f"v1,{LEFT_OUT}",
        traceparent=entry["traceparent"],
        body=entry["body"].encode(),
        subject=entry["subject"],
    )
    return Copy(endpoint["name"], _curl(endpoint["url"], request.headers, entry["body"]))


def _curl(url: str, headers: Headers, body: str) -> str:
    left_out = {WEBHOOK_TIMESTAMP: LEFT_OUT, WEBHOOK_SIGNATURE: f"v1,{LEFT_OUT}"}
    lines = [f"curl --request POST {shell_word(url)}"]
    lines += [
        f"  --header {shell_word(f'{name}: {left_out.get(name, value)}')}"
        for name, value in headers
    ]
    lines.append(f"  --data-raw {shell_word(body)}")
    return " \\\n".join(lines)
