"""Every code block of the documents does what it says, as it stands there.

Real: Postgres, the dispatcher, the payouts service, Spark. The operators' pages are followed in one
outbox, in which one decision was delivered and another one given up during an outage.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from alembic.migration import MigrationContext
from alembic.operations import Operations
from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import create_engine, inspect

from holdfast.deploy.local.java import spark_environment
from holdfast.deploy.local.ports import free_port
from holdfast.deploy.release import version
from holdfast.receiver.message.body import Body, parse_body
from holdfast.sink import OutboxSink, Permanent, Transient
from holdfast.sink.contract.exits import ExitCode
from holdfast.spark_app.exposure.policy_file import read
from tests.support.command import holdfast
from tests.support.dispatch.payouts import inquiry_headers
from tests.support.dispatch.sender import body, headers, secret_text
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.documents.pages import ROOT, Follower, blocks, blocks_of, shell
from tests.support.documents.runbook import Site, decided, rows, running_site
from tests.support.job.class_archive import OPTIONS
from tests.support.job.driver import Driver
from tests.support.job.jobs import POLICY, event, put
from tests.support.servers.databases import create

OPERATORS = (
    "README.md",
    "docs/operators/api.md",
    "docs/operators/approvals.md",
    "docs/operators/capacity.md",
    "docs/operators/checking.md",
    "docs/operators/database.md",
    "docs/operators/endpoints.md",
    "docs/operators/operations.md",
    "docs/receivers/payouts-service.md",
    "docs/operators/resending.md",
    "docs/operators/set-aside.md",
    "docs/operators/upgrading.md",
    "docs/receivers/testing-receivers.md",
)
"""Pages whose shell blocks are followed on one outbox."""

NEWCOMERS = ("docs/embedded-runtime.md", "docs/quickstart.md", "docs/spark/own-job.md")
"""Pages whose shell blocks are followed on a machine on which nothing runs."""

SAVEPOINTS = "docs/spark/savepoints.md"

RUNBOOK = ("deploy/runbook/", "docs/operators/alerts.md", "docs/spark/region-lost.md")
"""They are followed by `tests/e2e/runbook`, `tests/e2e/monitoring` and
`tests/spark/checkpoint/test_region_lost.py`, with all exit codes."""

RECEIVERS = "docs/receivers/other-languages.md"
"""`tests/integration/conformance/test_other_languages.py` has it: `make test-receivers`."""

NO_CLUSTER = "it names machines that are not there; tests/faults/test_job_cluster.py has its own"

NOT_RUN = {
    "make stack": "it runs until Ctrl-C; tests/e2e/test_local_stack.py runs the same",
    "holdfast job run --master spark://master:7077 --conf spark.executor.memory=2g --path events"
    " --checkpoint /shared/checkpoint --stream payouts --policy policy.toml": NO_CLUSTER,
    "spark-submit --master spark://master:7077 --conf spark.executor.memory=2g"
    " spark_app/__main__.py run --path events --checkpoint /shared/checkpoint --stream payouts"
    " --policy policy.toml": NO_CLUSTER,
    'make package PACKAGE="--python /usr/bin/python3.11"': ("it installs 300 MB"),
    f"mkdir environment && tar -xzf dist/holdfast-{version.current()}-python3.11-x86_64.tar.gz"
    " -C environment": NO_CLUSTER,
    "spark-submit --master k8s://https://api:6443 --deploy-mode cluster --properties-file"
    " payouts.conf local:///opt/holdfast/spark_app/__main__.py run --path s3a://events/"
    " --checkpoint hdfs://namenode:8020/checkpoints/payouts --stream payouts"
    " --policy /etc/holdfast/policy.toml": ("no Kubernetes is there"),
    'make install kafka-jars && export PATH="$PWD/.venv/bin:$PATH"    # jars too': (
        "tests/soak/kafka_quickstart.py follows it in a clone"
    ),
    'make images                      # CONTAINERS=podman; BUILD="--build-arg PYTHON_IMAGE=..."': (
        "it builds images for minutes; `make test-images` runs them"
    ),
    "python -m tests.benchmarks.footprint          # bytes, WAL, processor time of Postgres: a"
    " decision, a delivery; disk by rate": "benchmarks of minutes to an hour, on a quiet machine",
    "make images": "it builds images for minutes, and there is no Docker",
    'echo \'{"event_id": "e1", "merchant_id": "m_482", "type": "payout_submitted", "amount_minor":'
    ' 9000000, "currency": "USD", "occurred_at": "2026-11-02T12:01:00Z"}\' | docker compose'
    " --env-file deploy/compose/stack.env --file deploy/compose/compose.yml exec -T kafka"
    " /opt/kafka/bin/kafka-console-producer.sh --bootstrap-server localhost:9095 --topic"
    " payments": "there is no Docker",
    'make deploy-check-api            # CRDS="sparkapplications.spark.apache.org-v1.yaml"': (
        "it builds an API server for ten minutes"
    ),
    "make deploy-check": "tests/contract/test_deploy_check.py runs what it runs",
    "kubectl create namespace holdfast": "there is no cluster",
    'make release-check RELEASE="--key $HOME/.ssh/id_ed25519 --osv all.zip"': (
        "it takes minutes; tests/unit/release has its parts"
    ),
    "make docs-check": "it installs MkDocs, and needs Chromium",
    "make upgrade-transcript": "tests/faults/test_versions_together.py has its steps",
    "make kafka-jars": "it downloads jars, and no broker runs at the hosts of the page",
    "export KAFKA_JAAS='org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="job" password="...";\'': (
        "tests/soak/kafka_secured.py runs such a job on such a broker"
    ),
    "make demo   # two hours of traffic; Spark and the dispatcher are killed on the way": (
        "tests/e2e/test_demo.py runs the demo, and `make test` runs this file"
    ),
    "make tla-jar       # once: downloads the checker, by Maven": (
        "the block takes minutes; tests/model/test_models.py has the small sizes and the switches"
    ),
    'pip install "${HOLDFAST}[sink]"     # psycopg, pyarrow, numpy, tenacity, opentelemetry-api:'
    " no Spark, no command": "tests/soak/sink_versions.py installs the wheel and what it requires",
    'pip install "${HOLDFAST}[testing]"  # the sink, the tables, an embedded Postgres, pytest: no'
    " Spark": "tests/spark/test_testing_page.py has what it installs",
    "python3.11 -m venv spark-env        # your Spark, your libraries, and the sink": (
        "tests/soak/own_job.py makes such environments, and kills the job there"
    ),
    "spark-env/bin/pip install 'pyspark[connect]==4.3.0' pytest \"${HOLDFAST}[sink]\"": (
        "tests/soak/own_job.py starts such a server, and kills its worker"
    ),
    "make quick                                  # unit and contract tests, lint, types": (
        "the block runs this file, and parts of it"
    ),
}
"""The first lines of shell blocks that no test executes, each with the reason."""

PORTS = ("8480", "8098", "8099")
"""They may be taken here: a free one stands for each."""


def replaced() -> dict[str, str]:
    """What stands for the ports of the pages, and for the ten minutes that a page waits."""
    return {port: str(free_port()) for port in PORTS} | {"--for 10m": "--for 1s"}


IDENTIFIERS = {
    "REPLAY": r"holdfast replay apply ([0-9a-f]{8})",
    "REVISION": r"revision (\d{4})",
    "TOKEN": r"(hft_[\w-]+)",
}


def given_up_and_delivered(site: Site) -> None:
    """Leave the block of m_13 as a dead letter, and deliver those of m_482 and m_7."""
    site.endpoint()
    before = WebhookReceiver()
    before.port, before.script = site.port, lambda _: answer(404, b"no upstream")
    spark = Driver(site.dsn)
    site.dispatch()
    before.start()
    try:
        spark.tables(0, rows(decided("m_13", 1, "block")))
        site.until(lambda: site.value("SELECT count(*) FROM holdfast.dead_letter"))
    finally:
        before.close()
    site.serve()
    spark.tables(1, rows(decided("m_482", 1, "block"), decided("m_7", 1, "block")))
    delivered = "SELECT count(*) FROM holdfast.attempt WHERE status = 200"
    site.until(lambda: site.value(delivered) == 2)
    spark.sink.close()


@contextmanager
def waiting(site: Site) -> Iterator[str]:
    """Write a decision that waits while the block runs, behind a hold; yields its key."""
    at = ("m_7", "--endpoint", "payouts", "--reason", "for the page that cancels a decision")
    holdfast("subject", "hold", *at, dsn=site.dsn, code=ExitCode.OK)
    spark = Driver(site.dsn, query_id=site.value("SELECT query_id FROM holdfast.stream"))
    spark.tables(2, rows(decided("m_7", 2, "release")))
    spark.sink.close()
    yield key_of(site, "m_7", 2)
    holdfast("subject", "resume", *at, dsn=site.dsn, code=ExitCode.OK)


def key_of(site: Site, subject: str, sequence: int) -> str:
    """Return the key of an entry, as commands take it."""
    query = """
        SELECT 'hf_' || replace(key::text, '-', '') FROM holdfast.entry
        JOIN holdfast.subject s ON s.id = subject_id WHERE s.name = %s AND sequence = %s
    """
    (key,) = site.db.execute(query, [subject, sequence]).fetchone() or (None,)
    return str(key)


@pytest.fixture(scope="module")
def outbox(
    server_dsn: str, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """The world in which the operators' pages are followed."""
    names = [f"holdfast_test_docs_{os.getpid()}_{part}" for part in ("outbox", "payouts")]
    create(server_dsn, names[0], template_database)
    create(server_dsn, names[1], None)
    dsn, payouts_dsn = (make_conninfo(server_dsn, dbname=name) for name in names)
    with running_site(dsn, payouts_dsn, tmp_path_factory.mktemp("world")) as site:
        given_up_and_delivered(site)
        yield site


def environment(**more: str) -> dict[str, str]:
    ours = ("HOLDFAST_", "PAYOUTS_")
    return {
        name: value
        for name, value in os.environ.items()
        if name in OPTIONS or not name.startswith(ours)
    } | more


@pytest.mark.parametrize("page", OPERATORS)
def test_commands_of_an_operators_page(page: str, outbox: Site, tmp_path: Path) -> None:
    variables = environment(
        HOLDFAST_DSN=outbox.dsn,
        PAYOUTS_DSN=outbox.payouts_dsn,
        HOLDFAST_SECRET_DEV=secret_text(),
        HOLDFAST_ALLOW_SECRET_DIR=str(outbox.folder),
    )
    named = {"KEY": key_of(outbox, "m_482", 1), "SUBJECT": "m_482"}
    cancels = "<WAITING>" in (ROOT / page).read_text()
    with (
        waiting(outbox) if cancels else nullcontext("") as named["WAITING"],
        shell(tmp_path, variables) as bash,
    ):
        follower = Follower(bash, variables, named, IDENTIFIERS)
        follower.replaces = replaced()
        follower.follow(page, NOT_RUN)
    assert follower.shown


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        "docs/embedded-runtime.md",
        pytest.param("docs/quickstart.md", marks=[pytest.mark.rest, pytest.mark.spark]),
        pytest.param("docs/spark/own-job.md", marks=[pytest.mark.rest, pytest.mark.spark]),
    ],
)
def test_commands_of_a_newcomers_page(page: str, tmp_path: Path) -> None:
    variables = environment()
    with shell(tmp_path, variables) as bash:
        follower = Follower(bash, variables, replaces=replaced(), in_process=False)
        try:
            follower.follow(page, NOT_RUN)
        finally:
            bash.give("holdfast local down")
    if page == "docs/quickstart.md":
        held = "".join(follower.shown)
        held = held[held.rindex("0 dead letters") :]
        assert "m_482" in held
        assert "85,000" in held
    if page == "docs/spark/own-job.md":
        assert "killed: exit 137" in "".join(follower.shown)
        rows = json.loads(follower.shown[-2].splitlines()[-1])
        assert [(each["order_id"], each["held"], each["changes"]) for each in rows] == [
            *(("o_1", False, 2), ("o_2", False, 2), ("o_3", True, 1)),
            *(("o_6", False, 2), ("o_7", True, 1)),
        ]


@pytest.mark.rest
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_commands_of_the_page_on_savepoints(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    put(tmp_path / "events", 0, [event("e1", "12:01", 5_900_000), event("e2", "12:31", 1)])
    variables = environment(HOLDFAST_DSN=dsn, **spark_environment())
    with shell(tmp_path, variables) as bash:
        Follower(bash, variables, in_process=False).follow(SAVEPOINTS, NOT_RUN)
    assert json.loads((tmp_path / "ck-16" / "holdfast.json").read_text())["key_groups"] == 16
    assert db.execute("SELECT count(DISTINCT query_id) FROM holdfast.batch").fetchone() == (2,)


def executed(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """Execute a block of Python with what its page says is there."""
    exec(compile(text, "a block of the documents", "exec"), names)  # noqa: S102 - it is ours
    return names


NOT_UNDERSTOOD = {
    body(data={}): 422,
    body(data={"merchant_id": None}): 422,
    body(data={"merchant_id": ["m_482"]}): 422,
    body(data={"merchant_id": "m" * 8192}): 422,
    body(data=None): 400,
    body(data=[]): 400,
    body(type="holdfast.test"): 400,
}
"""Genuine deliveries, and the status that a receiver answers them with: never 500."""


async def posted(app: Any, content: bytes) -> httpx.Response:
    """The answer of an application to a delivery."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as client:
        return await client.post("/webhooks", content=content, headers=headers(content))


def application(dsn: str, names: dict[str, Any], **routes: str) -> Any:
    """An ASGI application whose routes are the functions of a page."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        route = names[routes[scope["path"].split("/")[1]]]
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            answered = await route(scope, connection)
        fields = [(name.encode(), value.encode()) for name, value in answered.headers.items()]
        await send({"type": "http.response.start", "status": answered.status, "headers": fields})
        await send({"type": "http.response.body", "body": answered.body})

    return app


def test_receiver_of_the_readme_acts_once(
    make_database: Callable[[str | None], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAYOUTS_SECRET", secret_text())
    dsn, held = make_database(None), []

    async def hold_the_payouts(_connection: Any, order: Body) -> None:
        held.append(order.text("merchant_id"))

    async def deliver() -> list[str]:
        async with AsyncConnectionPool(dsn, open=False) as pool:
            module = {"pool": pool, "hold_the_payouts": hold_the_payouts}
            names = executed(blocks_of("README.md", "python")[1], module)
            async with pool.connection() as connection:
                await connection.execute(names["inbox"].ddl)
            refused = [(await posted(names["app"], each)).status_code for each in NOT_UNDERSTOOD]
            answers = [await posted(names["app"], body()) for _ in range(2)]
        assert refused == list(NOT_UNDERSTOOD.values())
        return [each.json()["outcome"] for each in answers]

    assert asyncio.run(deliver()) == ["applied", "duplicate"]
    assert held == ["m_482"]


def test_kit_receiver_acts_once_and_answers_an_inquiry(
    make_database: Callable[[str | None], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAYOUTS_SECRET", secret_text())
    dsn, held = make_database(None), []

    async def hold_the_payouts(_connection: Any, order: Body) -> None:
        held.append(order.text("merchant_id"))

    receiving, _, asking = blocks_of("docs/receivers/receiver.md", "python")
    names: dict[str, Any] = {"hold_the_payouts": hold_the_payouts}
    names["my_asgi_app"] = application(dsn, names, webhooks="webhook", holdfast="key")
    executed(receiving, names)
    with psycopg.connect(dsn) as connection:
        connection.execute(names["inbox"].ddl)

    async def exchange() -> list[str]:
        refused = [(await posted(names["app"], each)).status_code for each in NOT_UNDERSTOOD]
        assert refused == list(NOT_UNDERSTOOD.values())
        answers = [await posted(names["app"], body()) for _ in range(2)]
        names["secrets"] = [names["Secret"].load("env:PAYOUTS_SECRET")]
        key = answers[0].json()["key"]
        transport = httpx.ASGITransport(executed(asking, names)["app"])
        async with httpx.AsyncClient(transport=transport, base_url="http://receiver") as client:
            answers += [await client.get(f"/holdfast/keys/{key}", headers=inquiry_headers(key))]
        return [each.json()["outcome"] for each in answers]

    assert asyncio.run(exchange()) == ["applied", "duplicate", "applied"]
    assert held == ["m_482"]


def test_revision_of_a_receiver_is_a_revision(make_database: Callable[[str | None], str]) -> None:
    names = executed(blocks_of("docs/receivers/receiver.md", "python")[1], {})
    dsn = make_database(None)
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        names["upgrade"]()
        assert "inbox" in inspect(connection).get_table_names("payouts")
        names["downgrade"]()
    engine.dispose()


def test_grant_to_a_service_is_one(db: psycopg.Connection) -> None:
    [text] = blocks_of("docs/operators/database.md", "sql")
    user = f"docs_{os.getpid()}"
    db.execute(f"CREATE ROLE {user}".encode())
    try:
        db.execute(text.replace("my_spark_user", user).encode())
        assert db.execute("SELECT pg_has_role(%s, 'holdfast_sink', 'SET')", [user]).fetchone() == (
            True,
        )
    finally:
        db.execute(f"DROP ROLE {user}".encode())


def test_file_of_an_endpoint_is_one(dsn: str, tmp_path: Path) -> None:
    [text] = blocks_of("docs/operators/endpoints.md", "toml")
    file = tmp_path / "endpoints.toml"
    file.write_text(text)
    variables = {"HOLDFAST_ALLOW_SECRET_DIR": "/run/secrets/holdfast"}
    for how in ("--yes", "--check"):
        words = ("endpoint", "apply", str(file), "--reason", "docs", how)
        done = holdfast(*words, dsn=dsn, environment=variables)
        assert done.returncode == ExitCode.OK, done.stdout + done.stderr


def test_policy_is_one() -> None:
    [text] = blocks_of("docs/spark/exposure-job.md", "toml")
    assert read(text).version == "2026-11-01"


def test_protocol_page_has_the_body_and_answer_of_the_code() -> None:
    body_text, answer_text = blocks_of("docs/receivers/PROTOCOL.md", "json")
    assert parse_body(body_text.encode()).type == "payout_hold.block"
    assert json.loads(answer_text).keys() == {"key", "outcome", "applied_at", "receipt"}


def test_rule_of_the_adapter_is_yaml_and_names_a_metric() -> None:
    [text] = blocks_of("docs/deploying/kubernetes.md", "yaml")
    [rule] = yaml.safe_load(text)["externalRules"]
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert f"`{rule['name']['as']}`" in metrics
    assert rule["name"]["as"] in rule["seriesQuery"]


def test_sink_takes_a_function_for_its_password() -> None:
    [*_, text, _] = blocks_of("docs/spark/sink.md", "python")
    names: dict[str, Any] = {"OutboxSink": OutboxSink, "token": lambda: "canary"}
    exec(text, names)  # noqa: S102 - a page of ours
    assert "canary" not in repr(names["sink"])


def test_own_rules_and_errors_of_the_sink_are_as_shown() -> None:
    _, _, rules, _, errors = blocks_of("docs/spark/sink.md", "python")
    names: dict[str, Any] = {
        "pc": pc,
        "entries_of": lambda rows: rows.filter(pc.is_valid(rows["order_id"])),
    }
    exec(rules, names)  # noqa: S102 - a page of ours
    selected = names["select"](pa.table({"order_id": ["o_1", None], "amount": [1, 2]}))
    assert selected.entries.num_rows == 1
    [refused] = selected.refused.to_pylist()
    assert (refused["reason"], json.loads(refused["row"])["amount"]) == ("no_such_order", 2)
    names = {"Permanent": Permanent, "Transient": Transient}
    exec(errors, names)  # noqa: S102 - a page of ours
    assert issubclass(names["UnknownAccount"], Permanent)
    assert issubclass(names["LimitsUnavailable"], Transient)


def test_scrape_configuration_is_yaml() -> None:
    [text] = blocks_of("deploy/prometheus/README.md", "yaml")
    assert yaml.safe_load(text)["rule_files"] == ["holdfast.yml"]


ELSEWHERE = {
    (
        "docs/deploying/releases.md",
        "sh",
        (
            'ssh-keygen -Y verify -f "$ALLOWED" -I release@holdfast -n holdfast-release -s'
            " SHA256SUMS.sig < SHA256SUMS \\"
        ),
    ): "tests/unit/release/test_release.py",
    (
        "docs/deploying/releases.md",
        "sh",
        'python -m holdfast.deploy.release verify --to dist/release --allowed "$ALLOWED"',
    ): "tests/unit/release/test_release.py",
    (
        "docs/from-the-lesson.md",
        "python",
        'BARRIER = "barrier 184"',
    ): "tests/unit/test_from_the_lesson.py",
    (
        "README.md",
        "python",
        "from holdfast.sink import OutboxSink",
    ): "tests/spark/test_outbox_sink_example.py",
    (
        "docs/spark/sink.md",
        "python",
        "from holdfast.sink import OutboxSink",
    ): "tests/spark/test_outbox_sink_example.py",
    (
        "docs/spark/sink.md",
        "python",
        'rule = F.when(F.col("order_id").isNull(), "no_such_order")',
    ): "tests/spark/test_outbox_sink_example.py",
    (
        "docs/spark/sink.md",
        "python",
        "from holdfast.sink import BatchInput, reject",
    ): "tests/e2e/test_docs.py",
    ("docs/spark/sink.md", "python", "sink = OutboxSink("): "tests/e2e/test_docs.py",
    **{
        ("docs/spark/testing-jobs.md", "python", first): "tests/spark/test_testing_page.py"
        for first in (
            "from pyspark.sql import SparkSession",
            "import pytest",
            'pytest_plugins = ["holdfast.testing.fixtures"]',
            "import psycopg",
            "import sys",
        )
    },
    ("docs/spark/sink.md", "python", "class UnknownAccount(Permanent):"): "tests/e2e/test_docs.py",
    (
        "docs/spark/deploying.md",
        "sh",
        'holdfast batch accept payouts 41 --divergence 7 --reason "the rule is new" --dry-run',
    ): "tests/integration/sink/test_acceptance.py",
    (
        "docs/spark/deploying.md",
        "sh",
        'holdfast stream rename payouts holds --reason "holds of all regions" --dry-run',
    ): "tests/integration/sink/test_renaming.py",
    (
        "docs/spark/deploying.md",
        "python",
        "stopping = Event()",
    ): "tests/spark/test_outbox_sink_example.py",
    **{
        (each.page, each.language, each.first): "tests/integration/sink/test_backfill.py"
        for each in blocks()
        if each.page == "docs/spark/backfill.md"
    },
}
"""Blocks that another file executes, by page, language and first line."""

EXECUTED: dict[tuple[str, str], Callable[..., None]] = {
    ("README.md", "python"): test_receiver_of_the_readme_acts_once,
    (
        "docs/receivers/receiver.md",
        "python",
    ): test_kit_receiver_acts_once_and_answers_an_inquiry,
    **{(page, "sh"): test_commands_of_an_operators_page for page in OPERATORS},
    **{(page, "sh"): test_commands_of_a_newcomers_page for page in NEWCOMERS},
    (SAVEPOINTS, "sh"): test_commands_of_the_page_on_savepoints,
    ("docs/operators/database.md", "sql"): test_grant_to_a_service_is_one,
    ("docs/operators/endpoints.md", "toml"): test_file_of_an_endpoint_is_one,
    ("docs/spark/exposure-job.md", "toml"): test_policy_is_one,
    ("docs/receivers/PROTOCOL.md", "json"): test_protocol_page_has_the_body_and_answer_of_the_code,
    ("docs/deploying/kubernetes.md", "yaml"): test_rule_of_the_adapter_is_yaml_and_names_a_metric,
    ("deploy/prometheus/README.md", "yaml"): test_scrape_configuration_is_yaml,
}
"""What executes the blocks of a page in one language."""


def test_every_block_is_executed_or_has_a_reason() -> None:
    left = [
        (each.page, each.language, each.first)
        for each in blocks()
        if each.language not in {"", "mermaid"}
        and (each.page, each.language) not in EXECUTED
        and (each.page, each.language, each.first) not in ELSEWHERE
        and not each.page.startswith((*RUNBOOK, RECEIVERS))
        and each.first not in NOT_RUN
    ]
    assert left == []


def test_every_reason_is_still_needed() -> None:
    assert NOT_RUN.keys() <= {each.first for each in blocks()}
    existing = {(each.page, each.language, each.first) for each in blocks()}
    assert ELSEWHERE.keys() <= existing
    assert all(page in (ROOT / file).read_text() for (page, *_), file in ELSEWHERE.items())
