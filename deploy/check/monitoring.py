"""Alerts and autoscalers name metrics that exist, and the operator gets the alerts of the file."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import yaml

from holdfast.deploy.check.project import Document, Project, loaded

HEAD = """\
# Written by `make deploy-rules` from deploy/prometheus/holdfast.yml: change that file.
"""

_NAME = re.compile(r"\bholdfast_\w+")
_OF_A_HISTOGRAM = re.compile(r"_(sum|count|bucket)$")

PROMTOOL_SECONDS = 30


def resource(project: Project) -> str:
    """Return the rules as the Prometheus operator takes them, as YAML."""
    content = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "holdfast", "labels": {"app.kubernetes.io/part-of": "holdfast"}},
        "spec": yaml.safe_load(project.rules.read_text()),
    }
    return HEAD + yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True)


def of_the_file(project: Project) -> Iterator[str]:
    """Yield what is wrong with the rules themselves."""
    shown = project.shown(project.rules)
    [content] = loaded(project.rules.read_text())
    for group in content["groups"]:
        for rule in group["rules"]:
            yield from _unknown(project, f"{shown}: {rule.get('alert')}", rule["expr"])
    copy = project.kubernetes / "components" / "monitoring" / "rules.yaml"
    if [each["spec"] for each in loaded(copy.read_text())] != [content]:
        yield f"{project.shown(copy)}: it differs from {shown}: run `make deploy-rules`"
    program = shutil.which("promtool")
    if program is not None:
        yield from _promtool(program, "check", "rules", str(project.rules))
        settings = project.compose / "prometheus.yml"
        if settings.exists():
            # Without the files that it names, which are in the container.
            yield from _promtool(program, "check", "config", "--syntax-only", str(settings))


def faults(project: Project, documents: list[Document]) -> Iterator[str]:
    """Yield metrics of autoscalers that nothing exports."""
    for document in documents:
        if document.kind == "HorizontalPodAutoscaler":
            for metric in document.spec["metrics"]:
                kind = str(metric["type"])
                source: dict[str, Any] = metric.get(kind[:1].lower() + kind[1:], {})
                name = source.get("metric", {}).get("name")
                if name is not None and name not in project.metrics:
                    yield f"{document}: nothing exports the metric {name}"


def _unknown(project: Project, where: str, expression: str) -> Iterator[str]:
    for name in sorted(set(_NAME.findall(expression))):
        if not {name, _OF_A_HISTOGRAM.sub("", name)} & project.metrics:
            yield f"{where}: nothing exports the metric {name}"


def _promtool(*command: str) -> Iterator[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PROMTOOL_SECONDS
    )
    if done.returncode:
        yield f"promtool: {(done.stdout + done.stderr).strip()}"
