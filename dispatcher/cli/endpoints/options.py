"""The options of `holdfast endpoint add` and `set`; `endpoint_checks` reads their values."""

from typing import Annotated

import typer

from sink.contract.states import EnvelopeStyle, OrderPolicy

Types = Annotated[
    list[str] | None, typer.Option("--type", help="Deliver only this type; repeatable.")
]
AllowCidr = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-cidr",
        help="A private network that it may be in; repeatable. `set`: none takes all away.",
    ),
]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        help="In each request: NAME=env:VAR or NAME=file:PATH; repeatable.",
    ),
]
HeaderLiteral = Annotated[
    list[str] | None,
    typer.Option(
        "--header-literal",
        help="NAME=VALUE in each request; repeatable. Stored as it is and masked where shown: for"
        " what is no secret.",
    ),
]
Envelope = Annotated[
    EnvelopeStyle | None,
    typer.Option("--envelope", help="cloudevents: its attributes as headers. Default: standard."),
]
Ca = Annotated[
    str | None,
    typer.Option("--ca", help="Its certificate authority (PEM): env:VAR or file:PATH; or none."),
]
ClientCert = Annotated[
    str | None,
    typer.Option("--client-cert", help="Our certificate (PEM): env:VAR or file:PATH; or none."),
]
ClientKey = Annotated[
    str | None,
    typer.Option("--client-key", help="Its private key (PEM): env:VAR or file:PATH; or none."),
]
TotalTimeout = Annotated[
    float | None,
    typer.Option("--total-timeout", help="Seconds for one whole attempt. Default: 30."),
]
ConnectTimeout = Annotated[
    float | None, typer.Option("--connect-timeout", help="Seconds to connect. Default: 5.")
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", min=1, max=1024, help="Requests at once. Default: 64."),
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--rate",
        min=0,
        max=2**31 - 1,
        help="Requests in any second, of all dispatchers; 0: no limit.",
    ),
]
Schedule = Annotated[
    str | None, typer.Option("--schedule", help="Seconds before each retry, comma-separated.")
]
Budget = Annotated[
    str | None,
    typer.Option("--budget", help="How long an entry is tried: 5d, 12h, 90m. Default: 5d."),
]
BreakerThreshold = Annotated[
    int | None,
    typer.Option(
        "--breaker-threshold",
        min=0,
        max=10_000,
        help="Failures in a row until nothing more is sent for a while; 0: no number of them."
        " An address that is refused stops it in any case. Default: 10.",
    ),
]
SlowStart = Annotated[
    str | None,
    typer.Option("--slow-start", help="How long it is spared after that: 60s, 5m. Default: 60s."),
]
Inquiry = Annotated[
    str | None,
    typer.Option(
        "--inquiry",
        help="Ask what became of a key before it is sent again. default: at /holdfast/keys/ of its"
        " origin; or another path, behind which the key is put; or none. Default: none.",
    ),
]
Order = Annotated[
    OrderPolicy | None,
    typer.Option("--order-policy", help="What a lane does behind a dead letter. Default: stop."),
]
