"""What `holdfast endpoint add` and `set` make of their options."""

from typing import Any

import pytest

from holdfast.dispatcher.cli.endpoints.settings import given, whole
from holdfast.dispatcher.operators.endpoints.store import DEFAULTS
from holdfast.sink.contract.exits import CommandError, ExitCode

REF = "env:HOLDFAST_SECRET_A"
SOUND = {**DEFAULTS, "url": "https://payouts.example/"}


def checked(**options: Any) -> dict[str, Any]:
    return whole({**SOUND, **given(options)})


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"budget": "5d"}, {"budget_seconds": 432_000}),
        ({"budget": "90m"}, {"budget_seconds": 5400}),
        ({"slow_start": "0s"}, {"slow_start_seconds": 0}),
        ({"rate": 0}, {"rate_per_second": None}),
        ({"rate": 7}, {"rate_per_second": 7}),
        ({"allow_cidr": ["none"]}, {"allow_cidrs": []}),
        ({"ca": "none"}, {"ca_ref": None}),
        ({"inquiry": "default"}, {"inquiry_path": "/holdfast/keys/"}),
        ({"inquiry": "/v1/keys/"}, {"inquiry_path": "/v1/keys/"}),
        ({"inquiry": "none"}, {"inquiry_path": None}),
        ({"header": [f"X-A={REF}"]}, {"headers": {"x-a": REF}}),
        ({"header_literal": ["X-A=b=c"]}, {"headers_literal": {"x-a": "b=c"}}),
        (
            {"type_": ["payout_hold.release", "payout_hold.block"]},
            {"types": ["payout_hold.block", "payout_hold.release"]},
        ),
        ({"total_timeout": 2}, {"total_timeout_ms": 2000, "connect_timeout_ms": 2000}),
        ({"type_": [], "ca": None, "dsn": "x"}, {}),
    ],
)
def test_options_become_columns(options: dict[str, Any], columns: dict[str, Any]) -> None:
    assert checked(**options) == {**SOUND, **columns}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"header": [f"host={REF}"]}, "host"),
        ({"header_literal": ["x-a=b\r\nhost: c"]}, "visible ASCII"),
        ({"header": ["authorization=Bearer hunter2"]}, "env:VAR"),
        ({"header": ["x-jwt=hunter2"]}, "--header-literal"),
        ({"header_literal": ["authorization=Bearer hunter2"]}, "env:VAR"),
        ({"header_literal": ["x-a=***"]}, "masks"),
        ({"header_literal": [f"x-a={REF}"]}, "reference"),
        ({"header": [f"x-a={REF}"], "header_literal": ["x-a=1"]}, "twice"),
        ({"header": ["no-value"]}, "NAME=VALUE"),
        ({"header": ["x-a="]}, "visible ASCII"),
        ({"header_literal": ["x-a="]}, "visible ASCII"),
        ({"header": [f"x-a={REF}", f"X-A={REF}"]}, "twice"),
        ({"header_literal": [f"x-{n}=1" for n in range(17)]}, "16"),
        ({"ca": "-----BEGIN hunter2"}, "--ca"),
        ({"client_cert": REF}, "go together"),
        ({"client_cert": "env:HOLDFAST_DSN"}, "HOLDFAST_SECRET_"),
        ({"ca": "file:/etc/passwd"}, "/run/secrets/holdfast"),
        ({"header": ["x-a=env:PGPASSWORD"]}, "HOLDFAST_SECRET_"),
        ({"secret_ref": ["env:HOME"]}, "HOLDFAST_SECRET_"),
        ({"client_key": "hunter2"}, "--client-key"),
        ({"budget": "5"}, "--budget"),
        ({"budget": "1s"}, "--budget"),
        ({"budget": "31d"}, "--budget"),
        ({"budget": "\u0665d"}, "--budget"),
        ({"slow_start": "2d"}, "--slow-start"),
        ({"inquiry": "https://other.example/keys/"}, "--inquiry"),
        ({"inquiry": "/keys?key="}, "--inquiry"),
        ({"inquiry": "/ke ys/"}, "--inquiry"),
        ({"url": "http://payouts.example/"}, "--allow-cidr"),
        ({"url": "https://127.0.0.1/"}, "private"),
        ({"url": "https://u:hunter2@x/"}, "password"),
        ({"url": "https://x/" + "y" * 2048}, "2048"),
        ({"allow_cidr": ["10.0.0.1/8"]}, "--allow-cidr"),
        ({"total_timeout": float("nan")}, "seconds"),
        ({"connect_timeout": float("inf")}, "seconds"),
        ({"schedule": "5,x"}, "--schedule"),
        ({"secret_ref": ["whsec_hunter2"]}, "env:VAR"),
        ({"secret_ref": ["env:A", "env:B", "env:C"]}, "two"),
    ],
)
def test_what_makes_no_sense_is_refused_without_repeating_a_secret(
    options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(CommandError) as refused:
        checked(**options)
    assert refused.value.exit_code is ExitCode.USAGE
    assert complaint in str(refused.value)
    assert "Nothing was changed" in str(refused.value)
    assert "hunter2" not in str(refused.value)
