"""`holdfast sign`: the signed headers for a delivery that is sent by hand."""

from typing import Annotated

import typer

from holdfast.dispatcher.cli.options import AsJson
from holdfast.dispatcher.cli.output import print_json
from holdfast.dispatcher.cli.workbench import options
from holdfast.sink.contract.wire import WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP

ID_CHARACTERS_MAX = 256


def sign(
    body: options.Body = options.STANDARD_INPUT,
    secret_ref: options.SecretRefs = None,
    id_: Annotated[
        str | None,
        typer.Option(
            "--id", help="webhook-id: the key of a Holdfast delivery. Default: the body's key."
        ),
    ] = None,
    timestamp: Annotated[
        str,
        typer.Option("--timestamp", help="Time of signing: Unix seconds, RFC 3339 in UTC, or now."),
    ] = "now",
    as_json: AsJson = False,
) -> None:
    """Print the three headers that sign the exact bytes of a body.

    Each --secret-ref adds a signature, as during rotation. Pass the lines to `curl -H @FILE`, and
    the body to --data-binary, because -d drops newlines.
    """
    with options.installed("sign"):
        from holdfast.dispatcher.outbound.signing import Signer  # noqa: PLC0415 - as above
        from holdfast.receiver.errors import VerificationError  # noqa: PLC0415 - as above
        from holdfast.receiver.message.body import parse_body  # noqa: PLC0415 - see options

    secrets = options.secrets_of(secret_ref)
    moment = int(options.moment_of("--timestamp", timestamp).timestamp())
    if moment < 0:
        raise options.usage(
            "--timestamp is before 1970; webhook-timestamp is Unix seconds and cannot be negative.",
            code="invalid_time",
        )
    content = options.bytes_of(body, "the body")
    if id_ is None:
        try:
            id_ = parse_body(content).key
        except VerificationError as error:
            raise options.usage(
                f"this body is not a Holdfast delivery ({error.detail}), so --id is required.",
                code="missing_parameter",
            ) from None
    if not _is_id(id_):
        raise options.usage(
            "--id must be 1 to 256 characters A-Z a-z 0-9 _ -.", code="invalid_value"
        )
    headers = {
        WEBHOOK_ID: id_,
        WEBHOOK_TIMESTAMP: str(moment),
        WEBHOOK_SIGNATURE: Signer(secrets).sign(id_, moment, content),
    }
    if as_json:
        print_json(headers)
        return
    for name, value in headers.items():
        typer.echo(f"{name}: {value}")


def _is_id(text: str) -> bool:
    plain = text.replace("_", "").replace("-", "")
    fits = 1 <= len(text) <= ID_CHARACTERS_MAX and text.isascii()
    return fits and (not plain or plain.isalnum())
