"""kube-score over the built overlays: what a kept linter knows of Kubernetes."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

from holdfast.deploy.check.project import ROOT, Document

BUILT = ROOT / ".holdfast" / "kube" / "kube-score"
"""Where `make deploy-lint` builds it."""

KUBERNETES = "v1.32"
SECONDS = 60

LEFT_OUT = (
    # An image is named by its version or digest, and a version is never built twice.
    "container-image-pull-policy",
    # Kubernetes bounds what a pod writes to its /tmp by the sizeLimit of the volume.
    "container-ephemeral-storage-request-and-limit",
    # The overlay `small` has one of each, and `production` spreads them by constraints.
    "deployment-replicas",
    "deployment-has-host-podantiaffinity",
    # It never starts by itself.
    "cronjob-has-deadline",
    # The own rules know the pods that Spark makes, and that nobody sends requests to a job.
    "networkpolicy-targets-pod",
    "service-targets-pod",
    "pod-probes",
)


def program() -> str | None:
    """Return the linter: on PATH, or as it was built."""
    return shutil.which("kube-score") or (str(BUILT) if BUILT.is_file() else None)


def faults(documents: list[Document]) -> Iterator[str]:
    """Yield what the linter calls critical or a warning; nothing where there is no linter."""
    linter = program()
    if linter is None:
        return
    done = subprocess.run(
        (
            *(linter, "score", "--kubernetes-version", KUBERNETES, "--output-format", "ci"),
            *("--ignore-container-cpu-limit", "--ignore-test", ",".join(LEFT_OUT), "-"),
        ),
        input=yaml.safe_dump_all([each.content for each in documents]),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    folder = documents[0].place if documents else Path("-")
    lines = done.stdout.splitlines()
    for line in lines:
        if line.startswith(("[CRITICAL]", "[WARNING]")):
            yield f"{folder}: kube-score: {line.partition('] ')[2]}"
    if done.returncode and not lines:
        yield f"{folder}: kube-score: {done.stderr.strip()[:300]}"
