"""`make deploy-check` passes as the files are, and finds each mistake that is planted in them."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("kubernetes_validate", reason="`make install` has not installed the tools yet")

from holdfast.deploy.check import compose, linter, manifests
from holdfast.deploy.check.__main__ import faults
from holdfast.deploy.check.project import ROOT, Document, Project
from holdfast.deploy.release import version
from holdfast.spark_app.exposure.policy_file import read

NEEDS_KUBECTL = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: overlays are not built"
)
NEEDS_LINTER = pytest.mark.skipif(
    linter.program() is None, reason="kube-score is not built: make deploy-lint"
)

PAGE = (ROOT / "docs" / "deploying" / "checks.md").read_text()
MISTAKES = re.findall(r"^\| `(deploy/.*)` \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
"""Of a file, in words, and what the fault says: as the page lists them."""

PLANTED = (
    # deploy/kubernetes/base/dispatcher.yaml
    ("minReadySeconds: 5", "minReadySecond: 5"),
    (
        "    matchLabels:\n      app.kubernetes.io/name: holdfast-dispatcher\n  template",
        "    matchLabels:\n      app.kubernetes.io/name: dispatcher\n  template",
    ),
    ("memory: 512Mi", "memory: 100Mi"),
    ("secretName: holdfast-endpoints", "secretName: endpoints"),
    ("key: dsn", "key: url"),
    ("--stop-seconds, ", "--stop-second, "),
    ("path: /healthz/live", "path: /live"),
    ("port: metrics\n            periodSeconds: 5", "port: http\n            periodSeconds: 5"),
    ("0.0.0.0:9464", "0.0.0.0:9465"),
    ("terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 25"),
    ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
    # deploy/kubernetes/base/api.yaml
    ("--host=0.0.0.0", "--host=127.0.0.1"),
    ("$(POD_IP)", "$(ADDRESS)"),
    ("targetPort: http", "targetPort: https"),
    # deploy/kubernetes/base/settings.yaml
    ("HOLDFAST_ALLOW_SECRET_DIR", "HOLDFAST_ALLOW_SECRETS_DIR"),
    # deploy/kubernetes/base/migrate.yaml
    (f"holdfast-migrate:{version.current()}", "holdfast-migrate:0.0.9"),
    ("args: [db, upgrade]", "args: [db, contract]"),
    # deploy/kubernetes/base/network.yaml
    (
        "podSelector:\n    matchLabels:\n      app.kubernetes.io/name: holdfast-api",
        "podSelector:\n    matchLabels:\n      app.kubernetes.io/name: holdfast-console",
    ),
    # deploy/kubernetes/base/kustomization.yaml
    ("- network.yaml", "- networks.yaml"),
    # deploy/kubernetes/components/job-single/job.yaml
    ("key: bootstrap-servers", "key: brokers"),
    ("- name: temporary\n              mountPath", "- name: scratch\n              mountPath"),
    # deploy/kubernetes/components/job-spark-operator/job.yaml
    ("--state-memory=512m", "--state-memories=512m"),
    ("pyFiles:", "pythonFiles:"),
    ("readOnlyRootFilesystem: true", "readOnlyFilesystem: true"),
    ("holdfast-job:dsn", "holdfast-job:password"),
    # deploy/kubernetes/components/autoscaling/dispatcher.yaml
    ("holdfast_oldest_due_age_seconds", "holdfast_backlog_age_seconds"),
    # deploy/kubernetes/components/autoscaling/kustomization.yaml
    ("op: remove\n        path: /spec/replicas", "op: remove\n        path: /spec/minReadySeconds"),
    # deploy/kubernetes/components/monitoring/monitors.yaml
    ("port: metrics", "port: metric"),
    # deploy/kubernetes/components/monitoring/rules.yaml
    ("holdfast_inflight", "holdfast_due"),
    # deploy/prometheus/holdfast.yml
    ("absent(holdfast_inflight)", "absent(holdfast_in_flight)"),
    # deploy/compose/compose.yml
    ("stop_grace_period: 40s", "stop_grace: 40s"),
    ("--secret-ref=file", "--secret=file"),
    ("127.0.0.1:8480/healthz/ready", "127.0.0.1:8480/ready"),
    ("secrets: [payouts.conf, payouts-signing]", "secrets: [payouts.conf, payouts-secret]"),
    ("file: secrets/payouts-signing", "file: secrets/payouts"),
    ("HOLDFAST_DSN: service=api", "HOLDFAST_DSN: postgresql://api:api@postgres/holdfast"),
    ("127.0.0.1:${PAYOUTS_PORT}", "${PAYOUTS_PORT}"),
    (
        "migrate: {condition: service_completed_successfully}",
        "migrate: {condition: service_healthy}",
    ),
    # deploy/compose/stack.env
    ("KAFKA_IMAGE=", "BROKER_IMAGE="),
    # deploy/compose/prometheus.yml
    ("job:9465", "job:9464"),
    # deploy/images/Dockerfile
    ("@sha256:", "-"),
    ("USER 10001:10001", "USER root"),
    ('["db", "upgrade"]', '["db", "update"]'),
    ("127.0.0.1:9464", "127.0.0.1:9465"),
    ('CMD ["dispatch", "--listen", "0.0.0.0:9464"]', "CMD dispatch --listen 0.0.0.0:9464"),
)
"""How each of them is made: what stands in the file, and what is put there."""

GONE = object()
"""A field that is taken away."""

SMALL, LARGE = "small", "production"
POD = "spec.template.spec"
ONE, SPREAD = f"{POD}.containers.0", f"{POD}.topologySpreadConstraints.0"
OF_CRON, PORT = "spec.jobTemplate.spec.template.spec", "spec.egress.0.ports.0.port"
DRIVER, EXECUTOR = (f"spec.{part}Spec.podTemplateSpec.spec" for part in ("driver", "executor"))
DISPATCHER, API = "Deployment holdfast-dispatcher", "Deployment holdfast-api"
JOB, SPARK = "StatefulSet holdfast-job", "SparkApplication holdfast-job"
MIGRATE, CONTRACT = "Job holdfast-migrate", "CronJob holdfast-contract"
NETWORK, BUDGET = "NetworkPolicy holdfast", "PodDisruptionBudget holdfast"
BINDING = "RoleBinding holdfast-job"
SIGNING = {"name": "signing", "secret": {"secretName": "holdfast-endpoints", "defaultMode": 288}}
OF_NODE = {"name": "node", "hostPath": {"path": "/"}}
FROM_SECRET = [{"secretRef": {"name": "holdfast-endpoints"}}]


class Field(NamedTuple):
    """One field of one document of an overlay, with another value."""

    overlay: str
    document: str
    path: str
    value: Any
    says: str


def _secret(name: str) -> dict[str, Any]:
    return {"secretKeyRef": {"name": name, "key": "dsn"}}


FIELDS = (
    # Which workload, image and login.
    (SMALL, DISPATCHER, "kind", "StatefulSet", "`dispatch --listen` runs as a Deployment"),
    (SMALL, JOB, "kind", "Deployment", "`job run` runs as a SparkApplication or StatefulSet"),
    (SMALL, JOB, "spec.replicas", 2, "2 drivers of one checkpoint"),
    (SMALL, DISPATCHER, "spec.replicas", 0, "replicas is 0"),
    (SMALL, API, "spec.strategy", {"type": "Recreate"}, "Recreate stops every pod"),
    (SMALL, API, f"{ONE}.image", "x/holdfast-job:0.3.0", "and not in holdfast-job"),
    *(
        (SMALL, at, f"{path}.env.0.valueFrom", _secret("postgres-superuser"), "not for the")
        for at, path in ((DISPATCHER, ONE), (MIGRATE, ONE))
    ),
    (SMALL, DISPATCHER, f"{ONE}.env.0.valueFrom", _secret("holdfast-migrate"), "not for the"),
    (SMALL, JOB, f"{ONE}.env.2.valueFrom", _secret("holdfast-api"), "not for the job"),
    (
        LARGE,
        SPARK,
        "spec.sparkConf",
        {"spark.kubernetes.driver.secretKeyRef.HOLDFAST_DSN": "holdfast-migrate:dsn"},
        "holdfast-migrate, which is not for the job",
    ),
    (SMALL, DISPATCHER, f"{ONE}.env", [], "HOLDFAST_DSN comes from no Secret"),
    (SMALL, API, f"{POD}.volumes", [SIGNING], "holdfast-endpoints, which is not for the api"),
    (SMALL, API, f"{ONE}.envFrom", FROM_SECRET, "holdfast-endpoints, which is not for the api"),
    # What a pod may do.
    (SMALL, API, f"{POD}.securityContext.runAsNonRoot", GONE, "runAsNonRoot is not set"),
    (SMALL, API, f"{POD}.securityContext.runAsUser", 1000, "runAsUser is not a number of 10000"),
    (SMALL, API, f"{POD}.securityContext.runAsUser", GONE, "runAsUser is not a number of 10000"),
    (SMALL, API, f"{POD}.securityContext.seccompProfile", GONE, "not RuntimeDefault"),
    *(
        (SMALL, API, f"{POD}.{name}", True, f"{name} is set")
        for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
    ),
    (SMALL, API, f"{POD}.automountServiceAccountToken", GONE, "the token of its account"),
    (LARGE, SPARK, f"{EXECUTOR}.automountServiceAccountToken", GONE, "the token of its account"),
    (SMALL, API, f"{POD}.volumes", [OF_NODE], "volume node is a path of the node"),
    (SMALL, API, f"{ONE}.securityContext.allowPrivilegeEscalation", GONE, "allowPrivilegeE"),
    (SMALL, API, f"{ONE}.securityContext.readOnlyRootFilesystem", GONE, "readOnlyRootFilesystem"),
    (SMALL, API, f"{ONE}.securityContext.capabilities", {"drop": ["NET_RAW"]}, "not all dropped"),
    (SMALL, API, f"{ONE}.securityContext.privileged", True, "it is privileged"),
    # Upgrades.
    (SMALL, MIGRATE, f"{ONE}.args", ["db", "upgrade"], "without --expand"),
    (SMALL, MIGRATE, f"{POD}.restartPolicy", "OnFailure", "restartPolicy is Never"),
    (SMALL, CONTRACT, "spec.suspend", GONE, "suspend is true"),
    (SMALL, CONTRACT, "spec.suspend", False, "suspend is true"),
    (SMALL, CONTRACT, "spec.concurrencyPolicy", "Allow", "concurrencyPolicy is Forbid"),
    (SMALL, CONTRACT, "spec.schedule", "0 0 1 1", "has not five fields"),
    # Probes.
    (SMALL, API, f"{ONE}.livenessProbe.httpGet.path", "/healthz/ready", "asks for readiness"),
    (SMALL, DISPATCHER, f"{ONE}.livenessProbe.httpGet.path", "/healthz/ready", "for readiness"),
    (SMALL, API, f"{ONE}.livenessProbe.failureThreshold", 1, "kills the pod within"),
    (SMALL, API, f"{ONE}.startupProbe", GONE, "it is killed unless it has started"),
    (SMALL, JOB, f"{ONE}.livenessProbe.initialDelaySeconds", 0, "unless it has started"),
    (SMALL, API, f"{ONE}.readinessProbe.httpGet.path", "/healthz/live", "no readinessProbe"),
    (SMALL, DISPATCHER, f"{ONE}.readinessProbe", GONE, "no readinessProbe"),
    # Secrets, volumes, memory.
    (SMALL, DISPATCHER, f"{POD}.volumes.0.secret.defaultMode", 0o400, "mode 0400 of"),
    (SMALL, DISPATCHER, f"{POD}.securityContext.fsGroup", GONE, "fsGroup may not read them"),
    (SMALL, DISPATCHER, f"{ONE}.volumeMounts.0.mountPath", "/etc/secrets", "is in no folder of"),
    (SMALL, JOB, f"{ONE}.args.4", "--checkpoint=/tmp/checkpoint", "on no volume that outlives"),
    (LARGE, SPARK, "spec.driverArgs.3", "--checkpoint=/tmp/c", "on no volume that"),
    (SMALL, JOB, f"{ONE}.volumeMounts.0.mountPath", "/data", "nothing uses /data"),
    (SMALL, JOB, f"{ONE}.volumeMounts.2.mountPath", "/temporary", "Spark has no /tmp"),
    (SMALL, JOB, f"{POD}.securityContext.fsGroup", GONE, "cannot write to its volume"),
    (SMALL, JOB, f"{ONE}.args.7", "--state-memory=3g", "above the limit of memory"),
    (SMALL, JOB, f"{ONE}.resources.limits.memory", "1Gi", "above the limit of memory"),
    (LARGE, SPARK, "spec.driverArgs.6", "--state-memory=2g", "is less than twice"),
    (
        LARGE,
        "PersistentVolumeClaim holdfast-state",
        "spec.accessModes",
        ["ReadWriteOnce"],
        "share it, and it is not ReadWriteMany",
    ),
    (
        LARGE,
        SPARK,
        f"{DRIVER}.volumes.0.persistentVolumeClaim.claimName",
        "state",
        "no PersistentVolumeClaim state",
    ),
    *(
        (SMALL, "ConfigMap holdfast-policy", "data", data, says)
        for data, says in (
            ({"policy.toml": "version ="}, "the policy cannot be used"),
            ({"policy.toml": 'version = "1"\nlimits = 3'}, "the policy cannot be used"),
            ({"policies.toml": 'version = "1"'}, "no ConfigMap has the policy"),
        )
    ),
    # Numbers of pods, and names.
    *((SMALL, f"{BUDGET}-api", "spec.maxUnavailable", value, "no pod go") for value in (0, "0%")),
    (LARGE, f"{BUDGET}-dispatcher", "spec.minAvailable", 2, "no pod go"),
    (
        LARGE,
        "HorizontalPodAutoscaler holdfast-dispatcher",
        "spec.maxReplicas",
        1,
        "minReplicas 2 is not from 1 to maxReplicas 1",
    ),
    (SMALL, JOB, "spec.serviceName", "holdfast", "there is no headless Service holdfast"),
    (SMALL, API, f"{POD}.serviceAccountName", "default", "there is no ServiceAccount default"),
    (LARGE, BINDING, "roleRef.name", "job", "there is no Role job"),
    (LARGE, BINDING, "subjects.0.name", "spark", "there is no ServiceAccount spark"),
    (LARGE, API, f"{SPREAD}.labelSelector.matchLabels", {"app": "x"}, "do not select its own pods"),
    (SMALL, "ConfigMap holdfast-console", "data.proxies", "*", "that any client writes"),
    # Network policies.
    *(
        (SMALL, f"{NETWORK}-database", f"spec.egress.0.ports.{n}.port", 54, says)
        for n, says in ((0, "DNS) over UDP"), (1, "DNS) over TCP"), (2, "reach Postgres"))
    ),
    (SMALL, f"{NETWORK}-dispatcher", PORT, 8443, "reach receivers"),
    (SMALL, f"{NETWORK}-job", PORT, 9094, "reach the broker kafka:9092"),
    (
        LARGE,
        f"{NETWORK}-job",
        "spec.egress.0.ports",
        [{"protocol": "TCP", "port": 9092}],
        "reach the API server",
    ),
    (SMALL, f"{NETWORK}-database", "spec.egress", [{}], "names no port"),
    (SMALL, f"{NETWORK}-api", "spec.ingress.0.from", GONE, "lets anybody in"),
    (SMALL, f"{NETWORK}-api", "spec.ingress.0.from.0.namespaceSelector", {}, "lets anybody in"),
    (SMALL, f"{NETWORK}-api", "spec.ingress", [], "reach its port 8480"),
    (
        SMALL,
        f"{NETWORK}-nothing",
        "spec.podSelector.matchLabels",
        {"app.kubernetes.io/name": "holdfast-api"},
        "no network policy limits its ingress",
    ),
)

BY_LINTER = (
    (SMALL, "Service holdfast-api", "spec.type", "NodePort", "NodePort"),
    (LARGE, API, f"{ONE}.image", "holdfast-api:latest", "latest"),
    (
        LARGE,
        f"{BUDGET}-api",
        "spec.selector.matchLabels",
        {"app.kubernetes.io/name": "holdfast-dispatcher"},
        "PodDisruptionBudget",
    ),
    (
        SMALL,
        DISPATCHER,
        f"{ONE}.env",
        [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "Environment Variable Key Duplication",
    ),
    (LARGE, DISPATCHER, "apiVersion", "extensions/v1beta1", "apiVersion"),
    (SMALL, CONTRACT, f"{OF_CRON}.restartPolicy", "Always", "RestartPolicy"),
)

HEALTHY, STARTED = "{condition: service_healthy}", "{condition: service_started}"
DONE = "{condition: service_completed_successfully}"

SECOND = (
    "  second:\n    <<: *holdfast\n    image: holdfast-job:${HOLDFAST_VERSION}\n"
    "    command: [job, run, --bootstrap-servers, 'kafka:9095', --topic, x, --checkpoint,"
    " /state/checkpoint, --stream, x, --policy, p]\n  endpoint:\n    <<: *once\n    image"
)

IN_COMPOSE = (
    # What a service waits for.
    (f"      grants: {DONE}\n      topic", "      topic", "job: it does not wait until its login"),
    (f"      topic: {DONE}\n", "", "job: it does not wait until kafka is healthy"),
    (
        f"    depends_on:\n      endpoint: {DONE}\n",
        "",
        "dispatcher: it does not wait until the endpoints are there",
    ),
    (
        f"endpoint: {DONE}",
        f"endpoint: {STARTED}",
        "dispatcher: it does not wait until the endpoints are there",
    ),
    (f"migrate: {DONE}", f"migrate: {STARTED}", "api: it does not wait until the schema is there"),
    (
        f"    depends_on:\n      postgres: {HEALTHY}\n\n  # The roles",
        "\n  # The roles",
        "migrate: it does not wait until postgres is healthy",
    ),
    (f"kafka: {HEALTHY}", f"kafka: {STARTED}", "job: it does not wait until kafka is healthy"),
    (f"    depends_on:\n      api: {HEALTHY}\n", "", "proxy: it does not wait for api"),
    # Logins and secrets.
    (
        "HOLDFAST_DSN: service=dispatcher",
        "HOLDFAST_DSN: service=migrate",
        "dispatcher: `dispatch` logs in as service=dispatcher, and not as migrate",
    ),
    (
        "PGSERVICEFILE: /run/secrets/job.conf\n    secrets: [job.conf]",
        "PGSERVICEFILE: /run/secrets/api.conf\n    secrets: [api.conf, job.conf]",
        "job: api.conf has no service job",
    ),
    (
        "PGSERVICEFILE: /run/secrets/dispatcher.conf",
        "PGSERVICEFILE: /run/secrets/job.conf",
        "dispatcher: PGSERVICEFILE /run/secrets/job.conf is none of its secrets",
    ),
    (
        "      FORWARDED_ALLOW_IPS: ${SUBNET}\n    secrets: [api.conf]",
        "      FORWARDED_ALLOW_IPS: ${SUBNET}\n    secrets: [api.conf, payouts-signing]",
        "api: it has the secret /run/secrets/payouts-signing and does not use it",
    ),
    (
        "secrets: [payouts.conf, payouts-signing]",
        "secrets: [payouts.conf, payouts-signing, postgres-password]",
        "payouts: it has the secret /run/secrets/postgres-password",
    ),
    ("  postgres:\n    image", "  database:\n    image", "no service postgres is a"),
    # What runs, and how often.
    ("command: [db, upgrade, --expand]", "command: [db, upgrade]", "migrate: without --expand"),
    (
        "    stop_grace_period: 6m\n",
        "    stop_grace_period: 6m\n    deploy: {replicas: 2}\n",
        "job: two drivers of one checkpoint",
    ),
    ("  endpoint:\n    <<: *once\n    image", SECOND, "job and second have the same checkpoint"),
    (
        "  dispatcher:\n    <<: *holdfast",
        "  dispatcher:\n    <<: *once",
        "dispatcher: restart is 'unless-stopped'",
    ),
    ("holdfast-job:${", "holdfast-api:${", "`job run` runs in holdfast-job"),
    # What is kept, and where.
    ("- state:/state", "- state:/data", "job: the checkpoint /state/checkpoint is on no"),
    (
        "--checkpoint=/state/checkpoint",
        "--checkpoint=/tmp/checkpoint",
        "job: the checkpoint /tmp/checkpoint is on no volume",
    ),
    (
        "- postgres:/var/lib/postgresql\n",
        "- postgres:/var/lib/postgresql/data\n",
        "postgres keeps it at /var/lib/postgresql",
    ),
    ("- grafana:/var/lib/grafana", "- grafana:/grafana", "nothing is kept at /grafana"),
    (
        "    volumes:\n      - kafka:/var/lib/kafka/data\n",
        "",
        "kafka: no volume is at /var/lib/kafka/data",
    ),
    ('    tmpfs: ["/tmp:mode=1777"]\n', "", "job: Spark has no /tmp"),
    ("mem_limit: 3g", "mem_limit: 1g", "job: --state-memory and 1Gi for Java are above"),
    (
        "--policy=/etc/holdfast/policy.toml",
        "--policy=/etc/holdfast/policies.toml",
        "job: no config is at /etc/holdfast/policies.toml",
    ),
    # What its containers may do.
    ("  read_only: true\n", "", "its root can be written, or it keeps capabilities"),
    ("  cap_drop: [ALL]\n", "", "its root can be written, or it keeps capabilities"),
    ('  security_opt: ["no-new-privileges:true"]\n', "", "it may gain privileges"),
    # What is reached.
    (
        "--bootstrap-servers=kafka:9095",
        "--bootstrap-servers=kafka:9093",
        "no service kafka is a broker at 9093",
    ),
    (":${PAYOUTS_PORT}:8099", ":${PAYOUTS_PORT}:8098", "payouts: it publishes 8098"),
    (":${GRAFANA_PORT}:3000", ":${GRAFANA_PORT}:3001", "grafana: it publishes 3001"),
)

IN_OTHERS = (
    ("stack.env", "GRAFANA_PORT=3000", "GRAFANA_PORT=9090", "have the same port 9090"),
    ("stack.env", "HOLDFAST_VERSION=0.3.0", "HOLDFAST_VERSION=0.1.0", "HOLDFAST_VERSION is not"),
    ("prometheus.yml", "[holdfast.yml]", "[rules.yml]", "rule_files names"),
    ("prometheus.yml", "alertmanager:9093", "alerts:9093", "no service alerts listens"),
    ("Caddyfile", "api:8480", "api:8481", "no service api listens at 8481"),
    ("datasource.yml", "prometheus:9090", "prometheus:9091", "no service listens at"),
    ("endpoints.toml", "payouts:8099", "payout:8099", "no service listens at"),
    (
        "endpoints.toml",
        "/run/secrets/holdfast/payouts",
        "/run/secrets/holdfast/payout",
        "the dispatcher has no secret",
    ),
    ("endpoints.toml", "172.30.93.0/24", "10.0.0.0/8", "of the stack is not allowed"),
    ("grants.sql", "holdfast_sink TO job", "holdfast_writer TO job", "there is no role"),
    (
        "grants.sql",
        "holdfast_dispatcher TO dispatcher",
        "holdfast_dispatcher TO api",
        "dispatcher is not granted",
    ),
    ("../kubernetes/base/policy.toml", "version =", "versions =", "job: the policy cannot be used"),
)


TEXTS = [*(("compose.yml", *row) for row in IN_COMPOSE), *IN_OTHERS]
"""Other words in a file of the stack: the file, what stands there, what is put there, the fault."""


def test_files_pass_as_they_are() -> None:
    assert list(faults(Project())) == []


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is checked."""
    root = tmp_path_factory.mktemp("checkout")
    for part in ("compose", "grafana", "kubernetes", "images", "prometheus"):
        shutil.copytree(ROOT / "deploy" / part, root / "deploy" / part)
    shutil.copytree(ROOT / "docs", root / "docs")
    return root


@contextmanager
def _changed(file: Path, old: str, new: str) -> Iterator[None]:
    before = file.read_text()
    assert old in before
    file.write_text(before.replace(old, new))
    try:
        yield
    finally:
        file.write_text(before)


def _is_among(says: str, lines: Iterable[str]) -> None:
    reply = list(lines)
    assert any(says in fault for fault in reply), reply


class Stack(Project):
    """A copy in which the manifests are as they are: their overlays are built once."""

    def overlay(self, name: str) -> list[Document]:
        return deepcopy(_built(name))


@cache
def _built(overlay: str) -> list[Document]:
    return Project().overlay(overlay)


@pytest.mark.long
@NEEDS_KUBECTL
@pytest.mark.parametrize(
    ("row", "planted"),
    list(zip(MISTAKES, PLANTED, strict=True)),
    ids=[f"{Path(file).stem}: {mistake}" for file, mistake, _ in MISTAKES],
)
def test_error_of_the_page_is_found(
    row: tuple[str, str, str], planted: tuple[str, str], checkout: Path
) -> None:
    file, _, says = row
    project = Project if "kubernetes" in file else Stack
    with _changed(checkout / file, *planted):
        _is_among(says, faults(project(checkout)))


@pytest.mark.rest
def test_command_says_each_fault_and_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "holdfast.deploy.check"),
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "there is no kubectl on PATH" in done.stdout


def test_policy_of_the_manifests_is_one() -> None:
    text = (ROOT / "deploy/kubernetes/base/policy.toml").read_text()
    assert read(text).version


def _with_another(field: Field) -> list[Document]:
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


def _name(row: tuple[Any, ...]) -> str:
    return ": ".join((Path(str(row[-4])).name, *(str(row[2]),) * (len(row) == 5), row[-1]))


@NEEDS_KUBECTL
@pytest.mark.parametrize("row", FIELDS, ids=_name)
def test_error_in_a_manifest_is_noticed(row: tuple[Any, ...]) -> None:
    field = Field(*row)
    _is_among(field.says, manifests.faults(Project(), _with_another(field)))


@NEEDS_KUBECTL
@NEEDS_LINTER
@pytest.mark.parametrize("row", BY_LINTER, ids=_name)
def test_error_is_noticed_by_the_linter(row: tuple[Any, ...]) -> None:
    field = Field(*row)
    assert not list(linter.faults(_built(field.overlay)))
    _is_among(field.says, linter.faults(_with_another(field)))


@pytest.mark.parametrize(("file", "old", "new", "says"), TEXTS)
def test_error_in_the_stack_is_noticed(
    file: str, old: str, new: str, says: str, checkout: Path
) -> None:
    project = Project(checkout)
    with _changed(project.compose / file, old, new):
        _is_among(says, compose.faults(project))
