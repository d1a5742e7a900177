"""Mistakes that fit every schema: each planted alone in what is shipped, and each is noticed."""

import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("kubernetes_validate", reason="`make install` has not installed the tools yet")

from holdfast.deploy.check import compose, linter, manifests
from holdfast.deploy.check.project import ROOT, Document, Project

NEEDS_KUBECTL = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: overlays are not built"
)
NEEDS_LINTER = pytest.mark.skipif(
    linter.program() is None, reason="kube-score is not built: make deploy-lint"
)

GONE = object()
"""A field that is taken away."""

SMALL, PRODUCTION = "small", "production"
POD = "spec.template.spec"
ONE = f"{POD}.containers.0"


class Field(NamedTuple):
    """One field of one document of an overlay, with another value."""

    overlay: str
    document: str
    path: str
    value: Any
    says: str


class Text(NamedTuple):
    """Other words in a file of the stack."""

    file: str
    old: str
    new: str
    says: str


def _secret(name: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": "dsn"}}


DISPATCHER, API, JOB = (
    "Deployment holdfast-dispatcher",
    "Deployment holdfast-api",
    "StatefulSet holdfast-job",
)
MIGRATE, CONTRACT, SPARK = (
    "Job holdfast-migrate",
    "CronJob holdfast-contract",
    "SparkApplication holdfast-job",
)
OF_CRON = "spec.jobTemplate.spec.template.spec"
DRIVER, EXECUTOR = "spec.driverSpec.podTemplateSpec.spec", "spec.executorSpec.podTemplateSpec.spec"
SIGNING = {"name": "signing", "secret": {"secretName": "holdfast-endpoints", "defaultMode": 288}}
POLICY = {"version": "1", "limit_minor": -1}

FIELDS = (
    # Which workload, image and login.
    Field(SMALL, DISPATCHER, "kind", "StatefulSet", "`dispatch --listen` runs as a Deployment"),
    Field(SMALL, JOB, "kind", "Deployment", "`job run` runs as a SparkApplication or StatefulSet"),
    Field(SMALL, JOB, "spec.replicas", 2, "2 drivers of one checkpoint"),
    Field(SMALL, DISPATCHER, "spec.replicas", 0, "replicas is 0"),
    Field(SMALL, API, "spec.strategy", {"type": "Recreate"}, "Recreate stops every pod"),
    Field(SMALL, API, f"{ONE}.image", "x/holdfast-job:0.3.0", "and not in holdfast-job"),
    *(
        Field(SMALL, at, f"{path}.env.0.valueFrom", _secret("postgres-superuser"), "not for the")
        for at, path in ((DISPATCHER, ONE), (MIGRATE, ONE))
    ),
    Field(SMALL, DISPATCHER, f"{ONE}.env.0.valueFrom", _secret("holdfast-migrate"), "not for the"),
    Field(SMALL, JOB, f"{ONE}.env.2.valueFrom", _secret("holdfast-api"), "not for the job"),
    Field(
        PRODUCTION,
        SPARK,
        "spec.sparkConf",
        {"spark.kubernetes.driver.secretKeyRef.HOLDFAST_DSN": "holdfast-migrate:dsn"},
        "holdfast-migrate, which is not for the job",
    ),
    Field(SMALL, DISPATCHER, f"{ONE}.env", [], "HOLDFAST_DSN comes from no Secret"),
    Field(SMALL, API, f"{POD}.volumes", [SIGNING], "holdfast-endpoints, which is not for the api"),
    Field(
        SMALL,
        API,
        f"{ONE}.envFrom",
        [{"secretRef": {"name": "holdfast-endpoints"}}],
        "holdfast-endpoints, which is not for the api",
    ),
    # Upgrades.
    Field(SMALL, MIGRATE, f"{ONE}.args", ["db", "upgrade"], "without --expand"),
    Field(SMALL, MIGRATE, f"{POD}.restartPolicy", "OnFailure", "restartPolicy is Never"),
    Field(SMALL, CONTRACT, "spec.suspend", GONE, "suspend is true"),
    Field(SMALL, CONTRACT, "spec.suspend", False, "suspend is true"),
    Field(SMALL, CONTRACT, "spec.concurrencyPolicy", "Allow", "concurrencyPolicy is Forbid"),
    Field(SMALL, CONTRACT, "spec.schedule", "0 0 1 1", "has not five fields"),
    # Probes.
    Field(SMALL, API, f"{ONE}.livenessProbe.httpGet.path", "/healthz/ready", "asks for readiness"),
    Field(
        SMALL, DISPATCHER, f"{ONE}.livenessProbe.httpGet.path", "/healthz/ready", "for readiness"
    ),
    Field(SMALL, API, f"{ONE}.livenessProbe.failureThreshold", 1, "kills the pod within"),
    Field(SMALL, API, f"{ONE}.startupProbe", GONE, "it is killed unless it has started"),
    Field(SMALL, JOB, f"{ONE}.livenessProbe.initialDelaySeconds", 0, "unless it has started"),
    Field(SMALL, API, f"{ONE}.readinessProbe.httpGet.path", "/healthz/live", "no readinessProbe"),
    Field(SMALL, DISPATCHER, f"{ONE}.readinessProbe", GONE, "no readinessProbe"),
    # Secrets, volumes, memory.
    Field(SMALL, DISPATCHER, f"{POD}.volumes.0.secret.defaultMode", 0o400, "mode 0400 of"),
    Field(SMALL, DISPATCHER, f"{POD}.securityContext.fsGroup", GONE, "fsGroup may not read them"),
    Field(
        SMALL, DISPATCHER, f"{ONE}.volumeMounts.0.mountPath", "/etc/secrets", "is in no folder of"
    ),
    Field(
        SMALL, JOB, f"{ONE}.args.4", "--checkpoint=/tmp/checkpoint", "on no volume that outlives"
    ),
    Field(PRODUCTION, SPARK, "spec.driverArgs.3", "--checkpoint=/tmp/c", "on no volume that"),
    Field(SMALL, JOB, f"{ONE}.volumeMounts.0.mountPath", "/data", "nothing uses /data"),
    Field(SMALL, JOB, f"{ONE}.volumeMounts.2.mountPath", "/temporary", "Spark has no /tmp"),
    Field(SMALL, JOB, f"{POD}.securityContext.fsGroup", GONE, "cannot write to its volume"),
    Field(SMALL, JOB, f"{ONE}.args.7", "--state-memory=3g", "above the limit of memory"),
    Field(SMALL, JOB, f"{ONE}.resources.limits.memory", "1Gi", "above the limit of memory"),
    Field(PRODUCTION, SPARK, "spec.driverArgs.6", "--state-memory=2g", "is less than twice"),
    Field(
        PRODUCTION,
        "PersistentVolumeClaim holdfast-state",
        "spec.accessModes",
        ["ReadWriteOnce"],
        "share it, and it is not ReadWriteMany",
    ),
    Field(
        PRODUCTION,
        SPARK,
        f"{DRIVER}.volumes.0.persistentVolumeClaim.claimName",
        "state",
        "there is no PersistentVolumeClaim state",
    ),
    *(
        Field(SMALL, "ConfigMap holdfast-policy", "data", data, says)
        for data, says in (
            ({"policy.toml": "version ="}, "the policy cannot be used"),
            ({"policy.toml": 'version = "1"\nlimits = 3'}, "the policy cannot be used"),
            ({"policies.toml": 'version = "1"'}, "no ConfigMap has the policy"),
        )
    ),
    # Numbers of pods, and names.
    *(
        Field(SMALL, "PodDisruptionBudget holdfast-api", "spec.maxUnavailable", value, "no pod go")
        for value in (0, "0%")
    ),
    Field(
        PRODUCTION, "PodDisruptionBudget holdfast-dispatcher", "spec.minAvailable", 2, "no pod go"
    ),
    Field(
        PRODUCTION,
        "HorizontalPodAutoscaler holdfast-dispatcher",
        "spec.maxReplicas",
        1,
        "minReplicas 2 is not from 1 to maxReplicas 1",
    ),
    Field(SMALL, JOB, "spec.serviceName", "holdfast", "there is no headless Service holdfast"),
    Field(SMALL, API, f"{POD}.serviceAccountName", "default", "there is no ServiceAccount default"),
    Field(PRODUCTION, "RoleBinding holdfast-job", "roleRef.name", "job", "there is no Role job"),
    Field(
        PRODUCTION,
        "RoleBinding holdfast-job",
        "subjects.0.name",
        "spark",
        "there is no ServiceAccount spark",
    ),
    Field(
        PRODUCTION,
        API,
        f"{POD}.topologySpreadConstraints.0.labelSelector.matchLabels",
        {"app": "x"},
        "do not select its own pods",
    ),
    Field(SMALL, "ConfigMap holdfast-console", "data.proxies", "*", "that any client writes"),
    # Network policies.
    *(
        Field(SMALL, "NetworkPolicy holdfast-database", f"spec.egress.0.ports.{n}.port", 54, says)
        for n, says in ((0, "DNS) over UDP"), (1, "DNS) over TCP"), (2, "reach Postgres"))
    ),
    Field(
        SMALL,
        "NetworkPolicy holdfast-dispatcher",
        "spec.egress.0.ports.0.port",
        8443,
        "reach receivers",
    ),
    Field(
        SMALL,
        "NetworkPolicy holdfast-job",
        "spec.egress.0.ports.0.port",
        9094,
        "reach the broker kafka:9092",
    ),
    Field(
        PRODUCTION,
        "NetworkPolicy holdfast-job",
        "spec.egress.0.ports",
        [{"protocol": "TCP", "port": 9092}],
        "reach the API server",
    ),
    Field(SMALL, "NetworkPolicy holdfast-database", "spec.egress", [{}], "names no port"),
    Field(SMALL, "NetworkPolicy holdfast-api", "spec.ingress.0.from", GONE, "lets anybody in"),
    Field(
        SMALL,
        "NetworkPolicy holdfast-api",
        "spec.ingress.0.from.0.namespaceSelector",
        {},
        "lets anybody in",
    ),
    Field(SMALL, "NetworkPolicy holdfast-api", "spec.ingress", [], "reach its port 8480"),
    Field(
        SMALL,
        "NetworkPolicy holdfast-nothing",
        "spec.podSelector.matchLabels",
        {"app.kubernetes.io/name": "holdfast-api"},
        "no network policy limits its ingress",
    ),
)

BY_LINTER = (
    Field(SMALL, "Service holdfast-api", "spec.type", "NodePort", "NodePort"),
    Field(PRODUCTION, API, f"{ONE}.image", "holdfast-api:latest", "latest"),
    Field(
        PRODUCTION,
        "PodDisruptionBudget holdfast-api",
        "spec.selector.matchLabels",
        {"app.kubernetes.io/name": "holdfast-dispatcher"},
        "PodDisruptionBudget",
    ),
    Field(
        SMALL,
        DISPATCHER,
        f"{ONE}.env",
        [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "Environment Variable Key Duplication",
    ),
    Field(PRODUCTION, DISPATCHER, "apiVersion", "extensions/v1beta1", "apiVersion"),
    Field(SMALL, CONTRACT, f"{OF_CRON}.restartPolicy", "Always", "RestartPolicy"),
)

STACK = "deploy/compose"
COMPOSE = f"{STACK}/compose.yml"
GRANTED = "      grants: {condition: service_completed_successfully}\n"

TEXTS = (
    # What a service waits for.
    Text(COMPOSE, GRANTED + "      topic", "      topic", "job: it does not wait until its login"),
    Text(
        COMPOSE,
        "      topic: {condition: service_completed_successfully}\n",
        "",
        "job: it does not wait until kafka is healthy",
    ),
    Text(
        COMPOSE,
        "    depends_on:\n      endpoint: {condition: service_completed_successfully}\n",
        "",
        "dispatcher: it does not wait until the endpoints are there",
    ),
    Text(
        COMPOSE,
        "endpoint: {condition: service_completed_successfully}",
        "endpoint: {condition: service_started}",
        "dispatcher: it does not wait until the endpoints are there",
    ),
    Text(
        COMPOSE,
        "migrate: {condition: service_completed_successfully}",
        "migrate: {condition: service_started}",
        "api: it does not wait until the schema is there",
    ),
    Text(
        COMPOSE,
        "    depends_on:\n      postgres: {condition: service_healthy}\n\n  # The roles",
        "\n  # The roles",
        "migrate: it does not wait until postgres is healthy",
    ),
    Text(
        COMPOSE,
        "kafka: {condition: service_healthy}",
        "kafka: {condition: service_started}",
        "job: it does not wait until kafka is healthy",
    ),
    Text(
        COMPOSE,
        "    depends_on:\n      api: {condition: service_healthy}\n",
        "",
        "proxy: it does not wait for api",
    ),
    # Logins and secrets.
    Text(
        COMPOSE,
        "HOLDFAST_DSN: service=dispatcher",
        "HOLDFAST_DSN: service=migrate",
        "dispatcher: `dispatch` logs in as service=dispatcher, and not as migrate",
    ),
    Text(
        COMPOSE,
        "PGSERVICEFILE: /run/secrets/job.conf\n    secrets: [job.conf]",
        "PGSERVICEFILE: /run/secrets/api.conf\n    secrets: [api.conf, job.conf]",
        "job: api.conf has no service job",
    ),
    Text(
        COMPOSE,
        "PGSERVICEFILE: /run/secrets/dispatcher.conf",
        "PGSERVICEFILE: /run/secrets/job.conf",
        "dispatcher: PGSERVICEFILE /run/secrets/job.conf is none of its secrets",
    ),
    Text(
        COMPOSE,
        "      FORWARDED_ALLOW_IPS: ${SUBNET}\n    secrets: [api.conf]",
        "      FORWARDED_ALLOW_IPS: ${SUBNET}\n    secrets: [api.conf, payouts-signing]",
        "api: it has the secret /run/secrets/payouts-signing and does not use it",
    ),
    Text(
        COMPOSE,
        "secrets: [payouts.conf, payouts-signing]",
        "secrets: [payouts.conf, payouts-signing, postgres-password]",
        "payouts: it has the secret /run/secrets/postgres-password",
    ),
    Text(COMPOSE, "  postgres:\n    image", "  database:\n    image", "no service postgres is a"),
    # What runs, and how often.
    Text(
        COMPOSE,
        "command: [db, upgrade, --expand]",
        "command: [db, upgrade]",
        "migrate: without --expand",
    ),
    Text(
        COMPOSE,
        "    stop_grace_period: 6m\n",
        "    stop_grace_period: 6m\n    deploy: {replicas: 2}\n",
        "job: two drivers of one checkpoint",
    ),
    Text(
        COMPOSE,
        "  endpoint:\n    <<: *once\n    image",
        "  second:\n    <<: *holdfast\n    image: holdfast-job:${HOLDFAST_VERSION}\n"
        "    command: [job, run, --bootstrap-servers, 'kafka:9095', --topic, x, --checkpoint,"
        " /state/checkpoint, --stream, x, --policy, p]\n  endpoint:\n    <<: *once\n    image",
        "job and second have the same checkpoint",
    ),
    Text(
        COMPOSE,
        "  dispatcher:\n    <<: *holdfast",
        "  dispatcher:\n    <<: *once",
        "dispatcher: restart is 'unless-stopped'",
    ),
    Text(COMPOSE, "holdfast-job:${", "holdfast-api:${", "`job run` runs in holdfast-job"),
    # What is kept, and where.
    Text(
        COMPOSE, "- state:/state", "- state:/data", "job: the checkpoint /state/checkpoint is on no"
    ),
    Text(
        COMPOSE,
        "--checkpoint=/state/checkpoint",
        "--checkpoint=/tmp/checkpoint",
        "job: the checkpoint /tmp/checkpoint is on no volume",
    ),
    Text(
        COMPOSE,
        "- postgres:/var/lib/postgresql\n",
        "- postgres:/var/lib/postgresql/data\n",
        "postgres keeps it at /var/lib/postgresql",
    ),
    Text(
        COMPOSE, "- grafana:/var/lib/grafana", "- grafana:/grafana", "nothing is kept at /grafana"
    ),
    Text(
        COMPOSE,
        "    volumes:\n      - kafka:/var/lib/kafka/data\n",
        "",
        "kafka: no volume is at /var/lib/kafka/data",
    ),
    Text(COMPOSE, '    tmpfs: ["/tmp:mode=1777"]\n', "", "job: Spark has no /tmp"),
    Text(
        COMPOSE, "mem_limit: 3g", "mem_limit: 1g", "job: --state-memory and 1Gi for Java are above"
    ),
    Text(
        COMPOSE,
        "--policy=/etc/holdfast/policy.toml",
        "--policy=/etc/holdfast/policies.toml",
        "job: no config is at /etc/holdfast/policies.toml",
    ),
    # What is reached.
    Text(
        COMPOSE,
        "--bootstrap-servers=kafka:9095",
        "--bootstrap-servers=kafka:9093",
        "no service kafka is a broker at 9093",
    ),
    Text(COMPOSE, ":${PAYOUTS_PORT}:8099", ":${PAYOUTS_PORT}:8098", "payouts: it publishes 8098"),
    Text(COMPOSE, ":${GRAFANA_PORT}:3000", ":${GRAFANA_PORT}:3001", "grafana: it publishes 3001"),
    Text(f"{STACK}/stack.env", "GRAFANA_PORT=3000", "GRAFANA_PORT=9090", "have the same port 9090"),
    Text(
        f"{STACK}/stack.env",
        "HOLDFAST_VERSION=0.3.0",
        "HOLDFAST_VERSION=0.1.0",
        "HOLDFAST_VERSION is not",
    ),
    Text(f"{STACK}/prometheus.yml", "[holdfast.yml]", "[rules.yml]", "rule_files names"),
    Text(
        f"{STACK}/prometheus.yml", "alertmanager:9093", "alerts:9093", "no service alerts listens"
    ),
    Text(f"{STACK}/Caddyfile", "api:8480", "api:8481", "no service api listens at 8481"),
    Text(f"{STACK}/datasource.yml", "prometheus:9090", "prometheus:9091", "no service listens at"),
    Text(f"{STACK}/endpoints.toml", "payouts:8099", "payout:8099", "no service listens at"),
    Text(
        f"{STACK}/endpoints.toml",
        "/run/secrets/holdfast/payouts",
        "/run/secrets/holdfast/payout",
        "the dispatcher has no secret",
    ),
    Text(f"{STACK}/endpoints.toml", "172.30.93.0/24", "10.0.0.0/8", "of the stack is not allowed"),
    Text(
        f"{STACK}/grants.sql", "holdfast_sink TO job", "holdfast_writer TO job", "there is no role"
    ),
    Text(
        f"{STACK}/grants.sql",
        "holdfast_dispatcher TO dispatcher",
        "holdfast_dispatcher TO api",
        "dispatcher is not granted",
    ),
    Text(
        "deploy/kubernetes/base/policy.toml",
        "version =",
        "versions =",
        "job: the policy cannot be used",
    ),
)


@cache
def _built(overlay: str) -> list[Document]:
    return Project().overlay(overlay)


def _planted(field: Field) -> list[Document]:
    """Return the documents of an overlay with one field changed."""
    documents = deepcopy(_built(field.overlay))
    [document] = [each for each in documents if f"{each.kind} {each.name}" == field.document]
    *above, last = (int(each) if each.isdigit() else each for each in field.path.split("."))
    place: Any = document.content
    for step in above:
        place = place[step]
    if field.value is GONE:
        del place[last]
    elif isinstance(place, list) or field.path != "spec.sparkConf":
        place[last] = field.value
    else:
        place[last] |= field.value
    return documents


def _name(planted: Field | Text) -> str:
    if isinstance(planted, Text):
        return f"{Path(planted.file).name}: {planted.says}"
    return f"{planted.document}: {planted.path}: {planted.says}"


@NEEDS_KUBECTL
@pytest.mark.parametrize("planted", FIELDS, ids=_name)
def test_mistake_in_a_manifest_is_noticed(planted: Field) -> None:
    found = list(manifests.faults(Project(), _planted(planted)))
    assert any(planted.says in fault for fault in found), found


@NEEDS_KUBECTL
@NEEDS_LINTER
@pytest.mark.parametrize("planted", BY_LINTER, ids=_name)
def test_mistake_is_noticed_by_the_linter(planted: Field) -> None:
    assert not list(linter.faults(_built(planted.overlay)))
    found = list(linter.faults(_planted(planted)))
    assert any(planted.says in fault for fault in found), found


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy of the stack's files and of what they name."""
    root = tmp_path_factory.mktemp("stack")
    for part in ("compose", "grafana", "prometheus", "kubernetes/base"):
        shutil.copytree(ROOT / "deploy" / part, root / "deploy" / part)
    return Project(root)


@pytest.mark.parametrize("planted", TEXTS, ids=_name)
def test_mistake_in_the_stack_is_noticed(planted: Text, stack: Project) -> None:
    file = stack.root / planted.file
    before = file.read_text()
    assert before.count(planted.old), planted
    file.write_text(before.replace(planted.old, planted.new))
    try:
        found = list(compose.faults(stack))
    finally:
        file.write_text(before)
    assert any(planted.says in fault for fault in found), found
