"""The job on a broker that wants TLS and a password: with the right ones, and with wrong ones.

Real: Kafka with a certificate in PEM and SASL/PLAIN, Spark, Postgres.
"""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from holdfast.deploy.local.kafka.broker import HOST, Broker
from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import ExitCode
from tests.support.job.jobs import event
from tests.support.kafka.fixtures import staged_or_skip
from tests.support.kafka.job import run_to_end
from tests.support.kafka.server import KafkaServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURED = "SASL_SSL://"


def _pem(authority: trustme.CA) -> bytes:
    """A key as Kafka reads it (PKCS 8), and its certificate."""
    issued = authority.issue_cert(HOST)
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text + b"".join(part.bytes() for part in issued.cert_chain_pems)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secured(
    authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaServer, str]]:
    """A broker, and the address at which it wants TLS and a password."""
    jars = staged_or_skip("broker")
    staged_or_skip("connector")
    folder = tmp_path_factory.mktemp("secured")
    (folder / "server.pem").write_bytes(_pem(authority))
    address = f"{HOST}:{free_port(HOST)}"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SASL_SSL:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_job="sesame";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
    }
    with Broker(folder / "broker", jars, settings, listeners=(SECURED + address,)) as broker:
        yield KafkaServer(broker), address


def test_secured_topic_is_read_and_wrong_secrets_get_one_sentence(
    secured: tuple[KafkaServer, str],
    authority: trustme.CA,
    dsn: str,
    db: psycopg.Connection,
    tmp_path: Path,
) -> None:
    kafka, address = secured
    topic = kafka.make_topic()
    kafka.produce(
        topic, [event("e1", "12:01", 6_000_000), event("e2", "12:30", 1), event("e3", "12:50", 1)]
    )
    for name, of in (("right.pem", authority), ("other.pem", trustme.CA())):
        (tmp_path / name).write_bytes(of.cert_pem.bytes())

    def options(certificate: str) -> tuple[str, ...]:
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": "env:HOLDFAST_SECRET_JAAS",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / certificate),
        }
        named = (f"kafka.{name}={value}" for name, value in settings.items())
        return tuple(word for each in named for word in ("--kafka-option", each))

    for certificate, password, reason in (
        ("right.pem", "guessed", "refuses the credentials of the job"),
        ("other.pem", "sesame", "TLS with the cluster"),
    ):
        jaas = f'{PLAIN} username="job" password="{password}";'
        done = run_to_end(
            *(tmp_path, dsn, address, topic, "payouts", *options(certificate)),
            secrets={"HOLDFAST_SECRET_JAAS": jaas},
        )
        assert done.returncode == ExitCode.FAILED, done.stderr
        [sentence] = [line for line in done.stderr.splitlines() if line.startswith("holdfast: ")]
        assert reason in sentence
        assert "Nothing is lost" in sentence
        assert "Traceback" not in done.stderr
        assert password not in done.stderr
    assert db.execute("SELECT count(*) FROM holdfast.batch").fetchone() == (0,)

    jaas = f'{PLAIN} username="job" password="sesame";'
    done = run_to_end(
        *(tmp_path, dsn, address, topic, "payouts", *options("right.pem")),
        secrets={"HOLDFAST_SECRET_JAAS": jaas},
    )
    assert done.returncode == ExitCode.OK, done.stderr
    decided = db.execute("SELECT type FROM holdfast.entry ORDER BY sequence").fetchall()
    assert decided == [("payout_hold.block",), ("payout_hold.release",)]
    kept = (tmp_path / "payouts" / "holdfast.json").read_text()
    assert "sesame" not in kept + done.stderr
