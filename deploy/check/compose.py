"""The compose file fits its schema, and its services run what the command offers."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from holdfast.deploy.check import stack
from holdfast.deploy.check.commands import fault_of, unread
from holdfast.deploy.check.project import Project, loaded
from holdfast.deploy.check.served import LOOPBACK, Served, health_target, served
from holdfast.deploy.compose.prepare import FOLDER, contents

_VARIABLE = re.compile(r"\$\{(\w+)(?::[?][^}]*)?\}")
_DURATION = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?")
_OURS = re.compile(r"holdfast-(\w+):")

STOP_SECONDS = 10.0
"""After which Docker kills a service that says nothing else."""


def faults(project: Project) -> Iterator[str]:
    """Yield what is wrong with the file, and with what it mounts."""
    path = project.compose / "compose.yml"
    shown = project.shown(path)
    values = _values(project)
    text = path.read_text()
    for name in sorted({each for each in _VARIABLE.findall(text) if each not in values}):
        yield f"{shown}: stack.env does not set {name}"
    [content] = loaded(_VARIABLE.sub(lambda match: values.get(match[1], match[0]), text))
    for error in Draft202012Validator(_schema()).iter_errors(content):
        location = ".".join(map(str, error.absolute_path))
        yield f"{shown}: {location or 'the top'}: {error.message[:300]}"
        return
    services = content["services"]
    for name, service in services.items():
        yield from (f"{shown}: {name}: {fault}" for fault in _service(content, service))
    yield from _files(project, shown, content)
    yield from _scraped(project, services)
    yield from stack.faults(project, content, values)


def _values(project: Project) -> dict[str, str]:
    lines = (project.compose / "stack.env").read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


@cache
def _schema() -> Any:
    """Return the schema of the compose specification that check-jsonschema brings."""
    folder = files("check_jsonschema") / "builtin_schemas" / "vendor"
    return json.loads((folder / "compose-spec.json").read_text())


def _service(content: Mapping[str, Any], service: Mapping[str, Any]) -> Iterator[str]:
    image = str(service.get("image", ""))
    if image.endswith(":latest") or (":" not in image and "@" not in image):
        yield f"the image {image} has no version"
    yield from _named(content, service)
    for name, value in service.get("environment", {}).items():
        if unread(name):
            yield f"nothing reads the variable {name}"
        if name.endswith(("PASSWORD", "DSN")) and "service=" not in str(value):
            yield f"{name} stands in the file: use a secret"
    for port in service.get("ports", ()):
        if not str(port).startswith("127.0.0.1:"):
            yield f"the port {port} can be reached from other machines"
    if _OURS.match(image) is not None:
        yield from _ours(service)


def _named(content: Mapping[str, Any], service: Mapping[str, Any]) -> Iterator[str]:
    """Yield services, secrets, configs and volumes that are named and are not there."""
    services = content["services"]
    for name, settings in service.get("depends_on", {}).items():
        if name not in services:
            yield f"there is no service {name}"
        elif settings["condition"] == "service_healthy" and "healthcheck" not in services[name]:
            yield f"it waits until {name} is healthy, which has no health check"
    for kind in ("secrets", "configs"):
        for each in service.get(kind, ()):
            source = each if isinstance(each, str) else each["source"]
            if source not in content.get(kind, {}):
                yield f"{source} is not among the {kind}"
    for volume in service.get("volumes", ()):
        name = volume.partition(":")[0]
        if name not in content.get("volumes", {}):
            yield f"there is no volume {name}"


def _ours(service: Mapping[str, Any]) -> Iterator[str]:
    if service.get("read_only") is not True or service.get("cap_drop") != ["ALL"]:
        yield "its root can be written, or it keeps capabilities"
    if "no-new-privileges:true" not in service.get("security_opt", ()):
        yield "it may gain privileges"
    words = list(service.get("command", ()))
    if (fault := fault_of(words)) is not None:
        yield fault
        return
    serves = served(words)
    if serves is None:
        return
    if serves.host in LOOPBACK:
        yield f"it listens on {serves.host}, which nobody outside reaches"
    stop = _seconds(str(service.get("stop_grace_period", "")))
    if stop < serves.stop_seconds:
        yield f"it may take {serves.stop_seconds:g} s to stop, and is killed after {stop:g}"
    yield from _health(service, serves)


def _health(service: Mapping[str, Any], serves: Served) -> Iterator[str]:
    test = service.get("healthcheck", {}).get("test", [])
    question = health_target(test[1:])
    if test[:1] != ["CMD"] or question is None:
        yield "its health check does not run holdfast.deploy.images.health"
        return
    path, port = question
    yield from (f"the health check {fault}" for fault in serves.faults(path, port))


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return STOP_SECONDS
    return 60.0 * int(match[1] or 0) + int(match[2] or 0)


def _files(project: Project, shown: str, content: Mapping[str, Any]) -> Iterator[str]:
    for name, each in content.get("configs", {}).items():
        if not (project.compose / each["file"]).resolve().is_file():
            yield f"{shown}: config {name}: there is no file {each['file']}"
    prepared = {f"{FOLDER.name}/{name}" for name in contents()}
    named = {each["file"] for each in content.get("secrets", {}).values()}
    for name in sorted(named - prepared):
        yield f"{shown}: deploy/compose/prepare.py does not make {name}"
    for name in sorted(prepared - named):
        yield f"{shown}: nothing uses {name}"


def _scraped(project: Project, services: Mapping[str, Any]) -> Iterator[str]:
    """Yield targets of Prometheus at which no service listens."""
    path = project.compose / "prometheus.yml"
    shown = project.shown(path)
    [content] = loaded(path.read_text())
    targets: list[tuple[str, int]] = []
    for job in content["scrape_configs"]:
        for group in job.get("static_configs", ()):
            for target in group["targets"]:
                host, _, port = target.partition(":")
                targets.append((host, int(port)))
        for group in job.get("dns_sd_configs", ()):
            targets += [(host, group["port"]) for host in group["names"]]
    by_target: dict[str, Served] = {}
    for name, service in services.items():
        if _OURS.match(str(service["image"])) is not None:
            serves = served(list(service.get("command", ())))
            if serves is not None and "/metrics" in serves.paths:
                by_target[name] = serves
    for host, port in targets:
        if host not in by_target or by_target[host].port != port:
            yield f"{shown}: no service {host} serves metrics at {port}"
    for name in sorted(by_target.keys() - {host for host, _ in targets}):
        yield f"{shown}: the metrics of {name} are not read"
