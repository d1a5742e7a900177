"""Which failed connections a person has to correct, by the text of the error."""

import psycopg
import pytest

from holdfast.sink.transaction.refusal import mistake

FAILED = 'connection to server at "{}" (10.0.0.7), port 5432 failed: '
REFUSED = FAILED + "Connection refused"
TLS = FAILED + "SSL error: certificate verify failed"


def _mistake(text: str) -> str | None:
    return mistake(psycopg.OperationalError(text), "hostaddr=10.0.0.7")


def _several(*attempts: tuple[str, str]) -> str:
    lines = [text.format(host) for host, text in attempts[-1:]]
    lines.append("Multiple connection attempts failed. All failures were:")
    lines += [
        f"- host: {host!r}, port: '5432', hostaddr: '10.0.0.7': connection failed: "
        + text.format(host)
        for host, text in attempts
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        REFUSED.format("certificates-db"),
        'connection to server on socket "/run/certificate/.s.PGSQL.5432" failed: No such file',
        'FATAL:  too many connections for role "certificate_writer"',
        "FATAL:  trop de connexions pour le rôle « certificate_writer »",
        "FATAL:  zu viele Verbindungen für Rolle „certificate_writer“",
        _several(("certificates-a", REFUSED), ("certificates-b", REFUSED)),
    ],
)
def test_name_with_the_word_certificate_is_no_mistake(text: str) -> None:
    assert _mistake(text) is None


def test_host_that_is_away_is_waited_for_beside_a_wrong_certificate() -> None:
    assert _mistake(_several(("a", TLS), ("b", REFUSED))) is None
    assert _mistake(_several(("a", REFUSED), ("b", TLS))) is None


def test_wrong_certificate_of_every_host_is_a_mistake() -> None:
    for text in (
        TLS.format("a"),
        _several(("a", TLS), ("b", TLS)),
        _several(("a", REFUSED), ("a", TLS)),
        'server certificate for "certificate" does not match host name "b"',
    ):
        assert "sslrootcert" in str(_mistake(text))
