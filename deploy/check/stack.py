"""Services of the compose file fit each other: what they wait for, log in as, keep and reach."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.deploy.check.commands import options_of
from holdfast.deploy.check.pods import amount
from holdfast.deploy.check.project import Project, loaded
from holdfast.deploy.check.served import served
from holdfast.deploy.check.workloads import (
    JVM_OVERHEAD,
    SECRET_DIR_DEFAULT,
    policy_fault,
    volume_of,
)
from holdfast.deploy.compose.prepare import LOGINS, OWNER, contents
from holdfast.deploy.release import version
from holdfast.sink.contract import roles

LOGIN_OF = {
    "dispatch": "dispatcher",
    "api": "api",
    "endpoint": "api",
    "job": "job",
    "payouts": "payouts",
    "db": "migrate",
}
"""The login that a command uses, by its first word."""

DATA = {
    "caddy": "/data",
    "grafana/grafana": "/var/lib/grafana",
    "prom/alertmanager": "/alertmanager",
    "prom/prometheus": "/prometheus",
}
"""Where the images of others keep their data. Postgres and Kafka: see `_data`."""

PORTS = {"grafana/grafana": 3000, "prom/alertmanager": 9093, "prom/prometheus": 9090}

POSTGRES_PORT = 5432
POSTGRES_KEEPS_BY_VERSION = 18
"""From this version on the volume is the folder above `data`."""

SECRETS = "/run/secrets"

_PROXIED = re.compile(r"reverse_proxy (\S+):(\d+)")
_LISTENS = re.compile(r"https?://[\w.]*:(\d+)")
_ROLE = re.compile(r"\bholdfast_\w+")
_GRANTED = re.compile(r"\bTO (\w+)")


class Waits(NamedTuple):
    """A service that is waited for."""

    name: str
    condition: str


def faults(
    project: Project, content: Mapping[str, Any], values: Mapping[str, str]
) -> Iterator[str]:
    """Yield what does not fit; `content` has the values of stack.env filled in."""
    services: Mapping[str, Any] = content["services"]
    secrets = contents()
    for name, service in services.items():
        mine = _words(service)
        messages = [
            *_kept(service, mine),
            *_published(project, service, mine),
            *(_ours(services, name, mine, secrets, content, project) if mine else ()),
        ]
        if "stack" not in service.get("networks", ()):
            messages.append("it is not in the network `stack`, where the others are")
        yield from (f"deploy/compose/compose.yml: {name}: {fault}" for fault in messages)
    yield from (f"deploy/compose/compose.yml: {each}" for each in _shared(services))
    yield from _proxy(project, services)
    yield from _prometheus(project, services)
    yield from _endpoints(project, services, values)
    yield from _grants(project)
    if values.get("HOLDFAST_VERSION") != version.current():
        yield f"deploy/compose/stack.env: HOLDFAST_VERSION is not {version.current()}"


def _words(service: Mapping[str, Any]) -> list[str]:
    """Return the command of one of our services; empty for another, or for no command."""
    image = str(service.get("image", ""))
    words = service.get("command")
    if not image.startswith("holdfast-") or not isinstance(words, list):
        return []
    try:
        options_of(words)
    except ValueError:
        return []
    return words


def _image(service: Mapping[str, Any]) -> tuple[str, str]:
    name, _, tag = str(service.get("image", "")).partition(":")
    return name, tag


def _waits(services: Mapping[str, Any], name: str) -> set[Waits]:
    """Return all that a service waits for, by way of others too."""
    waits: set[Waits] = set()
    left = [name]
    while left:
        for other, how in services.get(left.pop(), {}).get("depends_on", {}).items():
            one = Waits(other, how["condition"])
            if one not in waits:
                waits.add(one)
                left.append(other)
    return waits


def _ours(
    services: Mapping[str, Any],
    name: str,
    words: Sequence[str],
    secrets: Mapping[str, str],
    content: Mapping[str, Any],
    project: Project,
) -> Iterator[str]:
    service, options = services[name], options_of(words)
    image, command = f"holdfast-{_image_of(words[0])}", " ".join(words[:2])
    if _image(service)[0] != image:
        yield f"`{command}` runs in {image}"
    serves = served(words)
    if serves is not None and "healthcheck" not in service:
        yield "it has no health check"
    policy = "no" if serves is None else "unless-stopped"
    if service.get("restart") != policy:
        yield f"restart is {policy!r} for `{command}`"
    if words[0] == "db" and "--expand" not in words:
        yield "without --expand it drops what running processes need"
    if words[0] == "job":
        yield from _job(service, options, content, project)
    yield from _login(services, name, words, secrets)
    yield from _secrets(project, service, words)
    yield from _needs(services, name, words, options)


def _image_of(word: str) -> str:
    return {"db": "migrate", "job": "job", "dispatch": "dispatcher", "endpoint": "dispatcher"}.get(
        word, "api"
    )


def _job(
    service: Mapping[str, Any],
    options: Mapping[str, Any],
    content: Mapping[str, Any],
    project: Project,
) -> Iterator[str]:
    mounts = dict(_mounts(service))
    if volume_of(str(options["checkpoint"]), mounts) not in content.get("volumes", {}):
        yield f"the checkpoint {options['checkpoint']} is on no volume"
    if not any(str(each).partition(":")[0] == "/tmp" for each in service.get("tmpfs", ())):  # noqa: S108 - in a container
        yield "Spark has no /tmp to write to"
    if (service.get("deploy") or {}).get("replicas", 1) != 1 or service.get("scale", 1) != 1:
        yield "two drivers of one checkpoint: replicas is 1"
    state = amount(options["state_memory"].upper().rstrip("B") + "i")
    limit = str(service.get("mem_limit", "")).upper()
    if not limit or state + JVM_OVERHEAD > amount(limit.rstrip("B") + "i"):
        yield f"--state-memory and 1Gi for Java are above mem_limit {limit or '(none)'}"
    targets = {c["target"]: c["source"] for c in service.get("configs", ())}
    source = targets.get(str(options["policy"]))
    if source is None:
        yield f"no config is at {options['policy']}"
        return
    path = project.compose / content["configs"][source]["file"]
    if (fault := policy_fault(path.read_text())) is not None:
        yield fault


def _login(
    services: Mapping[str, Any], name: str, words: Sequence[str], secrets: Mapping[str, str]
) -> Iterator[str]:
    """Each part logs in as itself, at a service that it waits for."""
    environment = services[name].get("environment", {})
    login = LOGIN_OF.get(words[0], "")
    named = {v.partition("=")[2] for k, v in environment.items() if k.endswith("DSN")}
    if named != {login}:
        names = ", ".join(sorted(named)) or "nobody"
        yield f"`{words[0]}` logs in as service={login}, and not as {names}"
        return
    file = PurePosixPath(environment.get("PGSERVICEFILE", ""))
    if file.name not in secrets or file.name not in set(_sources(services[name])):
        yield f"PGSERVICEFILE {file} is none of its secrets"
        return
    parser = ConfigParser(interpolation=None)
    parser.read_string(secrets[file.name])
    if login not in parser:
        yield f"{file.name} has no service {login}"
        return
    host, port = parser[login]["host"], int(parser[login]["port"])
    if host not in services or _image(services[host])[0] != "postgres" or port != POSTGRES_PORT:
        yield f"{file.name}: no service {host} is a Postgres at {port}"
    elif Waits(host, "service_healthy") not in _waits(services, name):
        yield f"it does not wait until {host} is healthy"


def _secrets(project: Project, service: Mapping[str, Any], words: Sequence[str]) -> Iterator[str]:
    used = {*words, *map(str, service.get("environment", {}).values())}
    if words[0] == "dispatch":
        used |= {ref for each in _of_endpoints(project) for ref in each.get("secret_refs", ())}
    for each in service.get("secrets", ()):
        target = each if isinstance(each, str) else each.get("target", each["source"])
        path = target if target.startswith("/") else f"{SECRETS}/{target}"
        if not any(word.endswith(path) for word in used):
            yield f"it has the secret {path} and does not use it"
    for each in service.get("configs", ()):
        if not any(each["target"] == word.rpartition("=")[2] for word in words):
            yield f"nothing reads the config at {each['target']}"


def _sources(service: Mapping[str, Any]) -> Iterator[str]:
    for each in service.get("secrets", ()):
        yield each if isinstance(each, str) else each["source"]


def _needs(
    services: Mapping[str, Any], name: str, words: Sequence[str], options: Mapping[str, Any]
) -> Iterator[str]:
    waits = _waits(services, name)

    def ended(what: str, does: Sequence[str]) -> Iterator[str]:
        doers = [n for n, s in services.items() if _does(s, does)]
        if not any(Waits(each, "service_completed_successfully") in waits for each in doers):
            yield f"it does not wait until {what}"

    login = LOGIN_OF.get(words[0], "")
    if LOGINS.get(login) == "holdfast":
        yield from ended("the schema is there (`db upgrade`)", ("db", "upgrade"))
        yield from ended("its login has its role (grants.sql)", ("psql", "grants.sql"))
    if words[0] == "dispatch":
        yield from ended("the endpoints are there (`endpoint apply`)", ("endpoint", "apply"))
    for broker in filter(None, str(options.get("bootstrap_servers") or "").split(",")):
        host, _, port = broker.partition(":")
        listeners = services.get(host, {}).get("environment", {}).get("KAFKA_LISTENERS", "")
        if not any(each.endswith(f":{port}") for each in listeners.split(",")):
            yield f"no service {host} is a broker at {port}"
        elif Waits(host, "service_healthy") not in waits:
            yield f"it does not wait until {host} is healthy"
        yield from ended("the topic is there", ("kafka-topics.sh", "--create"))


def _does(service: Mapping[str, Any], does: Sequence[str]) -> bool:
    words = service.get("command") or ()
    return all(any(str(word).endswith(each) for word in words) for each in does)


def _mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for volume in service.get("volumes", ()):
        name, _, path = str(volume).partition(":")
        yield path.partition(":")[0], name


def _kept(service: Mapping[str, Any], words: Sequence[str]) -> Iterator[str]:
    image, tag = _image(service)
    data = _data(service, image, tag)
    used = [str(each).rpartition("=")[2] for each in words]
    mounts = dict(_mounts(service))
    for path in mounts:
        if path != data and not any(PurePosixPath(each).is_relative_to(path) for each in used):
            yield f"nothing is kept at {path}" + (f": {image} keeps it at {data}" if data else "")
    if data is not None and data not in mounts:
        yield f"no volume is at {data}, so its data ends with its container"


def _data(service: Mapping[str, Any], image: str, tag: str) -> str | None:
    if image == "apache/kafka":
        folders = service.get("environment", {}).get("KAFKA_LOG_DIRS")
        return None if folders is None else str(folders)
    if image == "postgres" and "environment" in service and "command" not in service:
        new = int(tag.partition(".")[0]) >= POSTGRES_KEEPS_BY_VERSION
        return "/var/lib/postgresql" if new else "/var/lib/postgresql/data"
    return DATA.get(image)


def _published(project: Project, service: Mapping[str, Any], words: Sequence[str]) -> Iterator[str]:
    image, _ = _image(service)
    serves = served(words) if words else None
    listening = {serves.port} if serves else {PORTS[image]} if image in PORTS else set()
    if image == "caddy":
        text = (project.compose / "Caddyfile").read_text()
        listening = {int(each) for each in _LISTENS.findall(text)}
    elif image == "apache/kafka":
        names = str(service.get("environment", {}).get("KAFKA_LISTENERS", ""))
        listening = {int(each.rpartition(":")[2]) for each in names.split(",") if each}
    for port in service.get("ports", ()):
        inner = str(port).rpartition(":")[2]
        if inner not in map(str, listening):
            yield f"it publishes {inner}, at which it does not listen"


def _shared(services: Mapping[str, Any]) -> Iterator[str]:
    """Yield published ports, checkpoints and streams that two services have."""
    seen: dict[tuple[str, str], str] = {}
    for name, service in services.items():
        ports = [str(p).rpartition(":")[0].rpartition(":")[2] for p in service.get("ports", ())]
        uses = [("port", each) for each in ports]
        if (words := _words(service)) and words[0] == "job":
            options = options_of(words)
            uses += [(each, str(options[each])) for each in ("checkpoint", "stream")]
        for each in uses:
            if seen.setdefault(each, name) != name:
                yield f"{seen[each]} and {name} have the same {each[0]} {each[1]}"


def _listens(services: Mapping[str, Any], host: str | None, port: int | None) -> bool:
    """Return whether a service of that name listens at that port, as far as that is known."""
    if host is None or host not in services:
        return False
    service = services[host]
    serves = served(words) if (words := _words(service)) else None
    return port == (serves.port if serves else PORTS.get(_image(service)[0], port))


def _proxy(project: Project, services: Mapping[str, Any]) -> Iterator[str]:
    text = (project.compose / "Caddyfile").read_text()
    for host, port in _PROXIED.findall(text):
        if not _listens(services, host, int(port)):
            yield f"deploy/compose/Caddyfile: no service {host} listens at {port}"
    for name, service in services.items():
        if _image(service)[0] == "caddy":
            healthy = {each.name for each in _waits(services, name)}
            for host, _ in _PROXIED.findall(text):
                if host not in healthy:
                    yield f"deploy/compose/compose.yml: {name}: it does not wait for {host}"
    [source] = loaded((project.compose / "datasource.yml").read_text())
    for each in source["datasources"]:
        parts = urlsplit(each["url"])
        if not _listens(services, parts.hostname, parts.port):
            yield f"deploy/compose/datasource.yml: no service listens at {each['url']}"


def _prometheus(project: Project, services: Mapping[str, Any]) -> Iterator[str]:
    path = project.compose / "prometheus.yml"
    shown = project.shown(path)
    [content] = loaded(path.read_text())
    for name, service in services.items():
        if _image(service)[0] != "prom/prometheus":
            continue
        mounted = {each["target"] for each in service.get("configs", ())}
        rules = {str(PurePosixPath("/etc/prometheus") / each) for each in content["rule_files"]}
        for each in sorted(rules - mounted):
            yield f"{shown}: rule_files names {each}, which {name} does not have"
        for each in sorted(mounted - rules - {"/etc/prometheus/prometheus.yml"}):
            yield f"{shown}: nothing reads {each}, which {name} has"
    for manager in content.get("alerting", {}).get("alertmanagers", ()):
        for group in manager.get("static_configs", ()):
            for target in group["targets"]:
                host, _, port = target.partition(":")
                if not _listens(services, host, int(port)):
                    yield f"{shown}: no service {host} listens at {port}"
    if not content.get("alerting"):
        yield f"{shown}: alerts go to no Alertmanager"


def _of_endpoints(project: Project) -> list[dict[str, Any]]:
    content = tomllib.loads((project.compose / "endpoints.toml").read_text())
    return list(content["endpoint"].values())


def _endpoints(
    project: Project, services: Mapping[str, Any], values: Mapping[str, str]
) -> Iterator[str]:
    shown = "deploy/compose/endpoints.toml"
    hosts = {
        str(each.get("target"))
        for service in services.values()
        if (words := _words(service)) and words[0] == "dispatch"
        for each in service.get("secrets", ())
        if isinstance(each, dict)
    }
    for each in _of_endpoints(project):
        parts = urlsplit(each["url"])
        if not _listens(services, parts.hostname, parts.port):
            yield f"{shown}: no service listens at {each['url']}"
        for ref in each.get("secret_refs", ()):
            path = ref.partition(":")[2]
            if path not in hosts or not path.startswith(f"{SECRET_DIR_DEFAULT}/"):
                yield f"{shown}: the dispatcher has no secret {path}"
        if values.get("SUBNET") not in each.get("allow_cidrs", ()):
            yield f"{shown}: the network {values.get('SUBNET')} of the stack is not allowed"


def _grants(project: Project) -> Iterator[str]:
    text = (project.compose / "grants.sql").read_text()
    known = {getattr(roles, each) for each in vars(roles) if each.isupper()}
    for role in sorted(set(_ROLE.findall(text)) - known):
        yield f"deploy/compose/grants.sql: there is no role {role}"
    granted = set(_GRANTED.findall(text))
    ours = {name for name, database in LOGINS.items() if database == "holdfast"}
    for name in sorted(granted ^ ours):
        yield f"deploy/compose/grants.sql: {name} is not granted what a login of the stack needs"
    if OWNER in granted:
        yield f"deploy/compose/grants.sql: {OWNER} needs no role"
