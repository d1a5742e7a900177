"""A real API server takes the overlays, and refuses mistakes: `make deploy-check-api`.

`HOLDFAST_TEST_CRDS` has the definitions of operators, separated by blanks.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.deploy.check.apiserver import PROGRAMS, Server, faults, running
from holdfast.deploy.check.project import ROOT, Project

CRDS = [Path(each) for each in os.environ.get("HOLDFAST_TEST_CRDS", "").split()]

PARTS = "deploy/kubernetes/components"

MISTAKES = (
    (
        "deploy/kubernetes/base/dispatcher.yaml",
        "    matchLabels:\n      app.kubernetes.io/name: holdfast-dispatcher\n  template",
        "    matchLabels:\n      app.kubernetes.io/name: dispatcher\n  template",
        "`selector` does not match template `labels`",
    ),
    (
        "deploy/kubernetes/base/dispatcher.yaml",
        "memory: 512Mi",
        "memory: 100Mi",
        "must be less than or equal to memory limit",
    ),
    (
        "deploy/kubernetes/base/api.yaml",
        "allowPrivilegeEscalation: false",
        "allowPrivilegeEscalation: true",
        'violates PodSecurity "restricted',
    ),
    (
        f"{PARTS}/monitoring/monitors.yaml",
        "interval: 15s",
        "interval: soon",
        "spec.endpoints[0].interval",
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(ROOT / PROGRAMS) as started:
        yield started


def test_overlays_are_taken(server: Server) -> None:
    assert list(faults(server, Project(), CRDS)) == []


@pytest.mark.parametrize(("file", "old", "new", "says"), MISTAKES)
def test_mistake_is_refused(
    server: Server, tmp_path: Path, file: str, old: str, new: str, says: str
) -> None:
    shutil.copytree(ROOT / "deploy" / "kubernetes", tmp_path / "deploy" / "kubernetes")
    path = tmp_path / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    mistakes = list(faults(server, Project(tmp_path), []))
    assert any(says in fault for fault in mistakes), mistakes
