"""`holdfast verify`: check whether a captured request is genuine, and explain why not."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.dispatcher.cli.options import AsJson
from holdfast.dispatcher.cli.output import print_json, visible
from holdfast.dispatcher.cli.workbench import options
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.wire import TOLERANCE_SECONDS, WEBHOOK_TIMESTAMP

if TYPE_CHECKING:
    from holdfast.dispatcher.workbench.listen.explain import Explanation

CAPTURE_BYTES_MAX = BODY_BYTES_MAX + 64 * 1024
TOLERANCE_SECONDS_MAX = 10**9
SIGNED = "signed"

Fields = list[tuple[bytes, bytes]]


Body = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE]",
        help="The exact bytes of the body; - is standard input. Default: the rest of the"
        " --headers file after the headers, else standard input.",
    ),
]
Header = Annotated[
    list[str] | None, typer.Option("-H", "--header", help="'name: value'; repeatable.")
]
HeadersFile = Annotated[
    str | None,
    typer.Option("--headers", help="A file with the headers, as curl -i or -v prints them."),
]
At = Annotated[
    str,
    typer.Option(
        "--at",
        help="Check as of this time: RFC 3339, Unix seconds, now, or signed (ignore the age).",
    ),
]
Tolerance = Annotated[
    int,
    typer.Option("--tolerance", help="Maximum age of the signature in seconds, past or future."),
]
SignatureOnly = Annotated[
    bool,
    typer.Option(
        "--signature-only", help="Check only the signature: for any Standard Webhooks sender."
    ),
]


def verify(
    body: Body = None,
    secret_ref: options.SecretRefs = None,
    header: Header = None,
    headers: HeadersFile = None,
    at: At = "now",
    tolerance: Tolerance = TOLERANCE_SECONDS,
    signature_only: SignatureOnly = False,
    as_json: AsJson = False,
) -> None:
    """Check a captured request as a receiver does: genuine, or the rule that failed.

    Exit code 0: genuine; 1: not genuine. Secrets are never printed.
    """
    with options.installed("verify"):
        from holdfast import receiver  # noqa: PLC0415 - see options
        from holdfast.dispatcher.workbench.listen.explain import explain  # noqa: PLC0415 - as above

    secrets = options.secrets_of(secret_ref)
    if not 0 <= tolerance <= TOLERANCE_SECONDS_MAX:
        raise options.usage(
            f"--tolerance must be 0 to {TOLERANCE_SECONDS_MAX} seconds.", code="invalid_value"
        )
    fields, content = _request(header or [], headers, body)
    now = _judged_at(at, fields)
    check = receiver.verify_signature if signature_only else receiver.verify
    try:
        verified = check(fields, content, secrets, now=now, tolerance_seconds=tolerance)
    except receiver.VerificationError as error:
        _refused(explain(error, fields, content, secrets, now), as_json=as_json)
        raise typer.Exit(ExitCode.FAILED) from None
    about: dict[str, Any] = {
        "genuine": True,
        "signed_at": verified.timestamp,
        "age_seconds": round((now - verified.timestamp).total_seconds()),
        "secret_ref": (secret_ref or [])[secrets.index(verified.secret)],
        "bytes": len(content),
    }
    if isinstance(verified, receiver.Delivery):
        about |= {
            "key": verified.key,
            "type": verified.body.type,
            "sequence": verified.body.sequence,
            "timestamp": verified.body.timestamp,
        }
    else:
        about |= {"id": verified.id}
    _genuine(about, as_json=as_json)


def _request(texts: Sequence[str], path: str | None, body: str | None) -> tuple[Fields, bytes]:
    """Return the header fields and the body, from options, files or standard input."""
    from holdfast.dispatcher.workbench.listen.explain import (  # noqa: PLC0415 - as above
        NotAHeaderError,
        field_of,
        read_capture,
    )

    try:
        fields = [field_of(text.encode(errors="surrogateescape")) for text in texts]
    except NotAHeaderError:
        raise options.usage("-H must be 'name: value'.", code="invalid_value") from None
    captured = None
    if path is not None:
        try:
            captured = read_capture(options.bytes_of(path, "the file", CAPTURE_BYTES_MAX))
        except NotAHeaderError as error:
            raise options.usage(f"--headers {path}, {error}.", code="invalid_file") from None
        fields += captured.headers
    if not fields:
        raise options.usage(
            "no headers: pass them with -H, or a file with --headers.", code="missing_parameter"
        )
    if body is None and captured is not None and captured.body is not None:
        return fields, captured.body
    if path == options.STANDARD_INPUT and body in (None, options.STANDARD_INPUT):
        return fields, b""  # standard input held only headers
    return fields, options.bytes_of(body or options.STANDARD_INPUT, "the body")


def _judged_at(text: str, fields: Fields) -> datetime:
    if text != SIGNED:
        return options.moment_of("--at", text)
    for name, value in fields:
        # The verification itself refuses a malformed timestamp.
        if name.lower() == WEBHOOK_TIMESTAMP.encode() and value.isdigit() and len(value) <= 11:
            return datetime.fromtimestamp(int(value), UTC)
    return datetime.now(UTC)


def _genuine(about: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(about)
        return
    what = about.get("type") or "request"
    sequence = f", sequence {about['sequence']}" if "sequence" in about else ""
    typer.echo(f"genuine: {what} {about.get('key') or about.get('id')}{sequence}")
    typer.echo(f"  signed    {rfc3339(about['signed_at'])}, {about['age_seconds']} s earlier")
    typer.echo(f"  with      {visible(about['secret_ref'])}")
    typer.echo(f"  body      {about['bytes']} bytes")


def _refused(why: "Explanation", *, as_json: bool) -> None:
    if as_json:
        print_json({"genuine": False, **asdict(why)})
        return
    typer.echo(
        f"not genuine: {why.reason} (a receiver answers {why.status}): {visible(why.detail)}"
    )
    typer.echo(f"  rule      {why.rule}")
    typer.echo(f"  expected  {visible(why.expected)}")
    typer.echo(f"  found     {visible(why.found)}")
    if why.hint:
        typer.echo(f"  hint      {visible(why.hint)}")
