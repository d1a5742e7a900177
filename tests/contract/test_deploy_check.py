"""`make deploy-check` passes as the files are, and finds a mistake of each kind."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("kubernetes_validate", reason="`make install` has not installed the tools yet")

from holdfast.deploy.check.__main__ import faults
from holdfast.deploy.check.project import ROOT, Project
from holdfast.deploy.release import version
from holdfast.spark_app.exposure.policy_file import read

PAGE = ROOT / "docs" / "deploying" / "checks.md"

NEEDS_KUBECTL = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed: overlays are not built"
)


@dataclass(frozen=True)
class Planted:
    """A mistake, and words of the fault that is to name it."""

    file: str
    mistake: str
    """As the page has it."""
    old: str
    new: str
    says: str

    @property
    def row(self) -> str:
        return f"| `{self.file}` | {self.mistake} | {self.says} |"


BASE, PARTS = "deploy/kubernetes/base", "deploy/kubernetes/components"
DISPATCHER, API, IMAGE = f"{BASE}/dispatcher.yaml", f"{BASE}/api.yaml", "deploy/images/Dockerfile"
COMPOSE = "deploy/compose/compose.yml"
SPARK, SINGLE = f"{PARTS}/job-spark-operator/job.yaml", f"{PARTS}/job-single/job.yaml"

MISTAKES = (
    Planted(
        DISPATCHER,
        "a field that Kubernetes does not have",
        "minReadySeconds: 5",
        "minReadySecond: 5",
        "'minReadySecond' was unexpected",
    ),
    Planted(
        DISPATCHER,
        "a selector that matches no pod",
        "    matchLabels:\n      app.kubernetes.io/name: holdfast-dispatcher\n  template",
        "    matchLabels:\n      app.kubernetes.io/name: dispatcher\n  template",
        "does not match the labels of its pods",
    ),
    Planted(
        DISPATCHER,
        "a request above its limit",
        "memory: 512Mi",
        "memory: 100Mi",
        "above its limit",
    ),
    Planted(
        DISPATCHER,
        "a Secret that the page does not list",
        "secretName: holdfast-endpoints",
        "secretName: endpoints",
        "the Secret endpoints is not in the list",
    ),
    Planted(
        DISPATCHER,
        "a key that the Secret does not have",
        "key: dsn",
        "key: url",
        "the key url of holdfast-dispatcher is not in the list",
    ),
    Planted(
        DISPATCHER,
        "an option that the command does not have",
        "--stop-seconds, ",
        "--stop-second, ",
        "No such option: --stop-second",
    ),
    Planted(
        DISPATCHER,
        "a probe of a path that is not served",
        "path: /healthz/live",
        "path: /live",
        "asks /live, which the command does not serve",
    ),
    Planted(
        DISPATCHER,
        "a probe of a port that is not named",
        "port: metrics\n            periodSeconds: 5",
        "port: http\n            periodSeconds: 5",
        "asks the port http, which no container has",
    ),
    Planted(
        DISPATCHER,
        "another port in the arguments than in the container",
        "0.0.0.0:9464",
        "0.0.0.0:9465",
        "which is no containerPort",
    ),
    Planted(
        DISPATCHER,
        "less time to stop than a stop takes",
        "terminationGracePeriodSeconds: 60",
        "terminationGracePeriodSeconds: 25",
        "s to stop",
    ),
    Planted(
        DISPATCHER,
        "a root file system that can be written",
        "readOnlyRootFilesystem: true",
        "readOnlyRootFilesystem: false",
        "readOnlyRootFilesystem is not true",
    ),
    Planted(
        API,
        "a server that listens on loopback",
        "--host=0.0.0.0",
        "--host=127.0.0.1",
        "nobody outside reaches",
    ),
    Planted(
        API,
        "an argument with a variable that is not there",
        "$(POD_IP)",
        "$(ADDRESS)",
        "no variable is named ADDRESS",
    ),
    Planted(
        API,
        "a Service without a pod",
        "targetPort: http",
        "targetPort: https",
        "no pod has the port https",
    ),
    Planted(
        f"{BASE}/settings.yaml",
        "a variable that nothing reads",
        "HOLDFAST_ALLOW_SECRET_DIR",
        "HOLDFAST_ALLOW_SECRETS_DIR",
        "nothing reads the variable HOLDFAST_ALLOW_SECRETS_DIR",
    ),
    Planted(
        f"{BASE}/migrate.yaml",
        "an image of another version",
        f"holdfast-migrate:{version.current()}",
        "holdfast-migrate:0.0.9",
        "is not of version",
    ),
    Planted(
        f"{BASE}/migrate.yaml",
        "a command of a CronJob that does not exist",
        "args: [db, upgrade]",
        "args: [db, contract]",
        "No such command 'contract'",
    ),
    Planted(
        f"{BASE}/network.yaml",
        "a policy for pods that are not there",
        "podSelector:\n    matchLabels:\n      app.kubernetes.io/name: holdfast-api",
        "podSelector:\n    matchLabels:\n      app.kubernetes.io/name: holdfast-console",
        "matches no pod",
    ),
    Planted(
        f"{BASE}/kustomization.yaml",
        "a file that is not there",
        "- network.yaml",
        "- networks.yaml",
        "overlay small: ",
    ),
    Planted(
        SINGLE,
        "a ConfigMap's key that is not there",
        "key: bootstrap-servers",
        "key: brokers",
        "there is no key brokers in a ConfigMap holdfast-job",
    ),
    Planted(
        SINGLE,
        "a mount without a volume",
        "- name: temporary\n              mountPath",
        "- name: scratch\n              mountPath",
        "there is no volume scratch",
    ),
    Planted(
        SPARK,
        "an argument of the job that is none",
        "--state-memory=512m",
        "--state-memories=512m",
        "No such option: --state-memories",
    ),
    Planted(
        SPARK,
        "a field that the Spark operator does not have",
        "pyFiles:",
        "pythonFiles:",
        "'pythonFiles' was unexpected",
    ),
    Planted(
        SPARK,
        "a field of its pods that Kubernetes does not have",
        "readOnlyRootFilesystem: true",
        "readOnlyFilesystem: true",
        "'readOnlyFilesystem' was unexpected",
    ),
    Planted(
        SPARK,
        "a reference of Spark to a key that is not there",
        "holdfast-job:dsn",
        "holdfast-job:password",
        "the key password of holdfast-job is not in the list",
    ),
    Planted(
        f"{PARTS}/autoscaling/dispatcher.yaml",
        "a metric that nothing exports",
        "holdfast_oldest_due_age_seconds",
        "holdfast_backlog_age_seconds",
        "nothing exports the metric holdfast_backlog_age_seconds",
    ),
    Planted(
        f"{PARTS}/autoscaling/kustomization.yaml",
        "replicas beside an autoscaler",
        "op: remove\n        path: /spec/replicas",
        "op: remove\n        path: /spec/minReadySeconds",
        "so each `apply` sets it back",
    ),
    Planted(
        f"{PARTS}/monitoring/monitors.yaml",
        "a port that no Service has",
        "port: metrics",
        "port: metric",
        "no Service has a port metric",
    ),
    Planted(
        f"{PARTS}/monitoring/rules.yaml",
        "an alert that differs from the file of alerts",
        "holdfast_inflight",
        "holdfast_due",
        "it differs from deploy/prometheus/holdfast.yml",
    ),
    Planted(
        "deploy/prometheus/holdfast.yml",
        "an alert of a metric that nothing exports",
        "absent(holdfast_inflight)",
        "absent(holdfast_in_flight)",
        "nothing exports the metric holdfast_in_flight",
    ),
    Planted(
        COMPOSE,
        "a field that compose does not have",
        "stop_grace_period: 40s",
        "stop_grace: 40s",
        "'stop_grace' was unexpected",
    ),
    Planted(
        COMPOSE,
        "an option that the command does not have",
        "--secret-ref=file",
        "--secret=file",
        "No such option: --secret",
    ),
    Planted(
        COMPOSE,
        "a health check of a path that is not served",
        "127.0.0.1:8480/healthz/ready",
        "127.0.0.1:8480/ready",
        "asks /ready, which the command does not serve",
    ),
    Planted(
        COMPOSE,
        "a secret that is not declared",
        "secrets: [payouts.conf, payouts-signing]",
        "secrets: [payouts.conf, payouts-secret]",
        "payouts-secret is not among the secrets",
    ),
    Planted(
        COMPOSE,
        "a secret that nothing makes",
        "file: secrets/payouts-signing",
        "file: secrets/payouts",
        "deploy/compose/prepare.py does not make secrets/payouts",
    ),
    Planted(
        COMPOSE,
        "a password in the file",
        "HOLDFAST_DSN: service=api",
        "HOLDFAST_DSN: postgresql://api:api@postgres/holdfast",
        "HOLDFAST_DSN stands in the file: use a secret",
    ),
    Planted(
        COMPOSE,
        "a port for other machines",
        "127.0.0.1:${PAYOUTS_PORT}",
        "${PAYOUTS_PORT}",
        "can be reached from other machines",
    ),
    Planted(
        COMPOSE,
        "a service that waits for one without a health check",
        "migrate: {condition: service_completed_successfully}",
        "migrate: {condition: service_healthy}",
        "it waits until migrate is healthy",
    ),
    Planted(
        "deploy/compose/stack.env",
        "a version that is not set",
        "KAFKA_IMAGE=",
        "BROKER_IMAGE=",
        "stack.env does not set KAFKA_IMAGE",
    ),
    Planted(
        "deploy/compose/prometheus.yml",
        "a target at which nobody listens",
        "job:9465",
        "job:9464",
        "no service job serves metrics at 9464",
    ),
    Planted(IMAGE, "a base without a digest", "@sha256:", "-", "has no digest"),
    Planted(IMAGE, "root", "USER 10001:10001", "USER root", "its user is root"),
    Planted(
        IMAGE,
        "a command that does not exist",
        '["db", "upgrade"]',
        '["db", "update"]',
        "No such command 'update'",
    ),
    Planted(
        IMAGE,
        "a health check of another port",
        "127.0.0.1:9464",
        "127.0.0.1:9465",
        "HEALTHCHECK asks port 9465",
    ),
    Planted(
        IMAGE,
        "a start by a shell",
        'CMD ["dispatch", "--listen", "0.0.0.0:9464"]',
        "CMD dispatch --listen 0.0.0.0:9464",
        "DL3025",
    ),
)


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


@pytest.mark.rest
@NEEDS_KUBECTL
@pytest.mark.parametrize(
    "planted", MISTAKES, ids=lambda each: f"{Path(each.file).stem}: {each.mistake}"
)
def test_mistake_is_found(planted: Planted, checkout: Path) -> None:
    file = checkout / planted.file
    before = file.read_text()
    assert planted.old in before
    file.write_text(before.replace(planted.old, planted.new))
    try:
        found = list(faults(Project(checkout)))
    finally:
        file.write_text(before)
    assert any(planted.says in fault for fault in found), found


def test_page_has_every_mistake() -> None:
    rows = re.findall(r"^\| `deploy/.*$", PAGE.read_text(), re.MULTILINE)
    assert rows == [each.row for each in MISTAKES]


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
    text = (ROOT / BASE / "policy.toml").read_text()
    assert read(text).version
