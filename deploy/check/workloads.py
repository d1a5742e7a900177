"""What each part of Holdfast needs of the workload that runs it: kind, login, disk and memory."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from holdfast.deploy.check.commands import filled, options_of
from holdfast.deploy.check.pods import Pod, amount, selects
from holdfast.deploy.check.project import Document
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.numbers import is_whole
from holdfast.spark_app.exposure.policy_file import read


class Part(NamedTuple):
    """A part of Holdfast, by the first word of its command."""

    name: str
    kinds: frozenset[str]
    """Of the workloads that keep what it promises."""


PARTS: Mapping[str, Part] = {
    "dispatch": Part("dispatcher", frozenset({"Deployment"})),
    "api": Part("api", frozenset({"Deployment"})),
    "job": Part("job", frozenset({"StatefulSet", "SparkApplication"})),
    "db": Part("migrate", frozenset({"Job", "CronJob"})),
}

SIGNING = "holdfast-endpoints"
"""The Secret with which dispatchers sign."""

SECRET_DIR = "HOLDFAST_ALLOW_SECRET_DIR"  # noqa: S105 - a variable's name
SECRET_DIR_DEFAULT = "/run/secrets/holdfast"  # noqa: S105 - a path

GROUP_READS = 0o040
FILE_MODE = 0o644
"""Of a Secret's files where nothing else is set."""

PATIENCE_SECONDS = 15
START_SECONDS = 30

JVM_OVERHEAD = amount("1Gi")
"""Java's heap and the Python processes beside the state, at least."""

_CRON = re.compile(r"(\S+ ){4}\S+")


class Runs(NamedTuple):
    """A container that runs a command of Holdfast."""

    pod: Pod
    container: Mapping[str, Any]
    words: Sequence[str]
    part: Part
    options: Mapping[str, Any]
    variables: Mapping[str, str]
    """Values of its environment, as far as the manifests have them."""

    def __str__(self) -> str:
        return f"{self.pod}: container {self.container.get('name')}"


def faults(
    documents: list[Document],
    pods: list[Pod],
    running: list[Runs],
    maps: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """Yield what a part cannot work with, or must not have, in the documents of one overlay.

    `running` are `runs` of all pods; `maps` is the data of the ConfigMaps.
    """
    for each in running:
        yield from _workload(each)
        yield from _probes(each)
        yield from _secrets(each)
        yield from _disk(each, maps)
        yield from _memory(each)
    yield from _one_writer(running)
    yield from _claims(documents, pods)
    for document in documents:
        yield from _named(document, documents)
        yield from _scaled(document, documents)


def runs(pod: Pod, maps: Mapping[str, Mapping[str, str]]) -> Iterator[Runs]:
    """Yield the containers of a pod that run a command of ours; those of executors run none."""
    spec = pod.document.spec
    for container in pod.containers:
        variables = dict(_variables(container, maps))
        words = filled(container.get("args") or [], variables)
        if pod.part == "driver":
            words = ["job", *spec.get("driverArgs", ())]
        part = PARTS.get(words[0]) if words and pod.part != "executor" else None
        if part is None:
            continue
        try:
            options = options_of(words)
        except ValueError:
            continue  # manifests.py reports it
        yield Runs(pod, container, words, part, options, variables)


def _variables(
    container: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str]]:
    for each in container.get("envFrom", ()):
        yield from maps.get((each.get("configMapRef") or {}).get("name", ""), {}).items()
    for each in container.get("env", ()):
        source = (each.get("valueFrom") or {}).get("configMapKeyRef")
        if source is not None:
            yield each["name"], maps.get(source["name"], {}).get(source["key"], "")
        elif "value" in each:
            yield each["name"], each["value"]


def _workload(each: Runs) -> Iterator[str]:
    document, part = each.pod.document, each.part
    spec, command = document.spec, " ".join(each.words[:2])
    if document.kind not in part.kinds:
        yield f"{each}: `{command}` runs as a {' or '.join(sorted(part.kinds))}"
    image = str(each.container.get("image", "")).rpartition("/")[2]
    if image and image.partition(":")[0] != f"holdfast-{part.name}":
        yield f"{each}: `{command}` runs in holdfast-{part.name}, and not in {image}"
    replicas = spec.get("replicas", 1)
    if part.name == "job" and replicas != 1:
        yield f"{each}: {replicas} drivers of one checkpoint: replicas is 1"
    elif replicas < 1:
        yield f"{each}: replicas is {replicas}"
    if document.kind == "Deployment" and spec.get("strategy", {}).get("type") == "Recreate":
        yield f"{each}: Recreate stops every pod before the next starts"
    if document.kind in {"Job", "CronJob"} and each.pod.spec.get("restartPolicy") != "Never":
        yield f"{each}: restartPolicy is Never: a failed step is seen, and is not repeated in place"
    if part.name == "migrate":
        yield from _migration(each)
    if each.variables.get("FORWARDED_ALLOW_IPS") == "*":
        yield f"{each}: FORWARDED_ALLOW_IPS believes the address that any client writes"


def _migration(each: Runs) -> Iterator[str]:
    spec, kind = each.pod.document.spec, each.pod.document.kind
    if tuple(each.words[:2]) != ("db", "upgrade"):
        return
    if kind == "CronJob":
        if spec.get("suspend") is not True:
            yield f"{each}: it runs by itself: suspend is true"
        if spec.get("concurrencyPolicy") != "Forbid":
            yield f"{each}: concurrencyPolicy is Forbid"
        if not _CRON.fullmatch(str(spec.get("schedule"))):
            yield f"{each}: the schedule {spec.get('schedule')} has not five fields"
    elif not each.options.get("expand"):
        yield f"{each}: without --expand it drops what running processes need"


def _probes(each: Runs) -> Iterator[str]:
    probes = {name: each.container.get(f"{name}Probe") for name in ("startup", "liveness")}
    for name, probe in probes.items():
        if str(((probe or {}).get("httpGet") or {}).get("path", "")).endswith("/ready"):
            yield f"{each}: {name}Probe asks for readiness: while Postgres is away it kills the pod"
    live = probes["liveness"]
    if live is None:
        return
    if live.get("failureThreshold", 3) * live.get("periodSeconds", 10) < PATIENCE_SECONDS:
        yield f"{each}: livenessProbe kills the pod within {PATIENCE_SECONDS} s"
    start = probes["startup"]
    patience = live.get("initialDelaySeconds", 0)
    if start is not None:
        patience += start.get("failureThreshold", 3) * start.get("periodSeconds", 10)
    if patience < START_SECONDS:
        yield f"{each}: it is killed unless it has started within {patience} s"
    if each.pod.document.kind != "Deployment":
        return
    ready = each.container.get("readinessProbe") or {}
    if not str((ready.get("httpGet") or {}).get("path", "")).endswith("/ready"):
        yield f"{each}: no readinessProbe asks whether it is ready"


def _secrets(each: Runs) -> Iterator[str]:
    """Each part has its own login, and dispatchers alone have what signs."""
    name = f"holdfast-{each.part.name}"
    allowed = {name, *([SIGNING] if each.part.name == "dispatcher" else ())}
    prefix = "spark.kubernetes.driver.secretKeyRef."
    settings = each.pod.document.spec.get("sparkConf") or {}
    logins = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]["name"]
        for variable in each.container.get("env", ())
        if "secretKeyRef" in (variable.get("valueFrom") or {})
    } | {k.removeprefix(prefix): v.partition(":")[0] for k, v in settings.items() if prefix in k}
    if "HOLDFAST_DSN" not in logins:
        yield f"{each}: HOLDFAST_DSN comes from no Secret"
    volumes = [v for v in each.pod.spec.get("volumes", ()) if "secret" in v]
    used = {
        *logins.values(),
        *(v["secret"]["secretName"] for v in volumes),
        *(e["secretRef"]["name"] for e in each.container.get("envFrom", ()) if "secretRef" in e),
    }
    for other in sorted(used - allowed):
        yield f"{each}: it has the Secret {other}, which is not for the {each.part.name}"
    group = (each.pod.spec.get("securityContext") or {}).get("fsGroup")
    for volume in volumes:
        secret = volume["secret"]
        modes = [
            secret.get("defaultMode", FILE_MODE),
            *(i["mode"] for i in secret.get("items", ()) if "mode" in i),
        ]
        for mode in modes:
            readable = mode & 0o004 or (group is not None and mode & GROUP_READS)
            if not readable:
                yield (
                    f"{each}: mode {mode:04o} of {secret['secretName']}: its files are root's, and"
                    " fsGroup may not read them"
                )
    folders = each.variables.get(SECRET_DIR, SECRET_DIR_DEFAULT).split(":")
    names = {v["name"] for v in volumes}
    for mount in each.container.get("volumeMounts", ()):
        if mount["name"] in names and not any(_below(mount["mountPath"], f) for f in folders):
            yield f"{each}: {mount['mountPath']} is in no folder of {SECRET_DIR}"


def _disk(each: Runs, maps: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    volumes = {v["name"]: v for v in each.pod.spec.get("volumes", ())}
    claims = {c["metadata"]["name"] for c in each.pod.document.spec.get("volumeClaimTemplates", ())}
    kept = {*claims, *(n for n, v in volumes.items() if "persistentVolumeClaim" in v)}
    mounts = {m["mountPath"]: m["name"] for m in each.container.get("volumeMounts", ())}
    checkpoint = str(each.options.get("checkpoint") or "")
    if each.part.name == "job":
        if "://" not in checkpoint and volume_of(checkpoint, mounts) not in kept:
            yield f"{each}: the checkpoint {checkpoint} is on no volume that outlives the pod"
        if (mounts.get("/tmp")) is None:  # noqa: S108 - in a container
            yield f"{each}: Spark has no /tmp to write to"
        yield from _policy(each, volumes, mounts, maps)
    if kept & set(mounts.values()) and not each.pod.spec.get("securityContext", {}).get("fsGroup"):
        yield f"{each}: without fsGroup it cannot write to its volume"
    folders = each.variables.get(SECRET_DIR, SECRET_DIR_DEFAULT).split(":")
    known = [*map(str, each.options.values()), *each.variables.values(), *folders, "/tmp"]  # noqa: S108
    for path in sorted(mounts):
        if not any(_below(value, path) for value in known):
            yield f"{each}: nothing uses {path}, where {mounts[path]} is mounted"


def _policy(
    each: Runs,
    volumes: Mapping[str, Mapping[str, Any]],
    mounts: Mapping[str, str],
    maps: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    path = each.options.get("policy")
    if path is None:
        return
    volume = volumes.get(volume_of(str(path), mounts) or "", {})
    source = (volume.get("configMap") or {}).get("name", "")
    text = maps.get(source, {}).get(PurePosixPath(str(path)).name)
    if text is None:
        yield f"{each}: no ConfigMap has the policy {path}"
    elif (fault := policy_fault(text)) is not None:
        yield f"{each}: {source}: {fault}"


def policy_fault(text: str) -> str | None:
    """Return why the job does not start with a policy; None for one that it takes."""
    try:
        read(text)
    except (CommandError, ValueError, tomllib.TOMLDecodeError) as error:
        return f"the policy cannot be used: {error}"
    return None


def _memory(each: Runs) -> Iterator[str]:
    if each.part.name != "job":
        return
    state = amount(each.options["state_memory"].upper().rstrip("B") + "i")
    settings = each.pod.document.spec.get("sparkConf")
    if settings is None:
        limit = (each.container.get("resources", {}).get("limits") or {}).get("memory")
        if limit is not None and state + JVM_OVERHEAD > amount(limit):
            yield f"{each}: --state-memory and 1Gi for Java are above the limit of memory {limit}"
        return
    for part in ("driver", "executor"):
        name = f"spark.{part}.memoryOverhead"
        if state * 2 > amount(str(settings.get(name, "0")).upper() + "i"):
            yield f"{each.pod.document}: {name} is less than twice --state-memory"


def _one_writer(running: list[Runs]) -> Iterator[str]:
    jobs = [each for each in running if each.part.name == "job"]
    for option in ("stream", "checkpoint"):
        seen: dict[Any, Runs] = {}
        for each in jobs:
            other = seen.setdefault(each.options.get(option), each)
            if other is not each:
                yield f"{each}: {other.pod.document} has the same {option}: two drivers"


def _claims(documents: list[Document], pods: list[Pod]) -> Iterator[str]:
    """Yield claims that nobody makes, and those for one node that several pods mount."""
    modes = {
        d.name: set(d.spec.get("accessModes", ()))
        for d in documents
        if d.kind == "PersistentVolumeClaim"
    }
    users: dict[str, int] = {}
    for pod in pods:
        for volume in pod.spec.get("volumes", ()):
            if (claim := volume.get("persistentVolumeClaim")) is not None:
                count = pod.document.spec.get("replicas", 1)
                users[claim["claimName"]] = users.get(claim["claimName"], 0) + count
                if claim["claimName"] not in modes:
                    yield f"{pod}: there is no PersistentVolumeClaim {claim['claimName']}"
    for name, count in users.items():
        if count > 1 and "ReadWriteMany" not in modes.get(name, {"ReadWriteMany"}):
            yield (
                f"PersistentVolumeClaim {name}: {count} pods share it, and it is not ReadWriteMany"
            )


def _named(document: Document, documents: list[Document]) -> Iterator[str]:
    """Yield accounts, roles and Services that are named and are not there."""

    def missing(kind: str, name: str | None) -> Iterator[str]:
        if name is not None and not any((d.kind, d.name) == (kind, name) for d in documents):
            yield f"{document}: there is no {kind} {name}"

    for pod in _pods(document):
        yield from missing("ServiceAccount", pod.get("serviceAccountName"))
        labels = (_template(document).get("metadata") or {}).get("labels") or {}
        for spread in pod.get("topologySpreadConstraints", ()):
            if not selects(spread.get("labelSelector", {}).get("matchLabels", {}), labels):
                yield f"{document}: topologySpreadConstraints do not select its own pods"
    if document.kind == "StatefulSet":
        name = document.spec.get("serviceName")
        if not any(
            (d.kind, d.name, d.spec.get("clusterIP")) == ("Service", name, "None")
            for d in documents
        ):
            yield f"{document}: there is no headless Service {name}"
    if document.kind == "RoleBinding":
        role = document.content.get("roleRef") or {}
        yield from missing(role.get("kind", ""), role.get("name"))
        for subject in document.content.get("subjects", ()):
            yield from missing(subject["kind"], subject["name"])
    if document.kind == "SparkApplication":
        yield from missing(
            "ServiceAccount",
            document.spec["sparkConf"].get(
                "spark.kubernetes.authenticate.driver.serviceAccountName"
            ),
        )


def _scaled(document: Document, documents: list[Document]) -> Iterator[str]:
    spec = document.spec
    if document.kind == "HorizontalPodAutoscaler":
        low, high = spec.get("minReplicas", 1), spec["maxReplicas"]
        if not 1 <= low <= high:
            yield f"{document}: minReplicas {low} is not from 1 to maxReplicas {high}"
    if document.kind != "PodDisruptionBudget":
        return
    labels = spec["selector"].get("matchLabels", {})
    replicas = [
        d.spec.get("replicas", 2)
        for d in documents
        if d.kind in {"Deployment", "StatefulSet"}
        and selects(labels, d.spec["template"]["metadata"].get("labels") or {})
    ]
    low = str(spec.get("minAvailable", 0))
    kept = low == "100%" or (is_whole(low) and int(low) >= min(replicas, default=1))
    if str(spec.get("maxUnavailable", 1)) in {"0", "0%"} or kept:
        yield f"{document}: it lets no pod go, so no node can be drained"


def _template(document: Document) -> dict[str, Any]:
    spec = document.spec
    if document.kind == "CronJob":
        spec = (spec.get("jobTemplate") or {}).get("spec") or {}
    return dict(spec.get("template") or {})


def _pods(document: Document) -> Iterator[dict[str, Any]]:
    if document.kind == "SparkApplication":
        for part in ("driverSpec", "executorSpec"):
            yield (document.spec.get(part, {}).get("podTemplateSpec") or {}).get("spec") or {}
    elif document.kind in {"Deployment", "StatefulSet", "Job", "CronJob", "DaemonSet"}:
        yield dict(_template(document).get("spec") or {})


def volume_of(path: str, mounts: Mapping[str, str]) -> str | None:
    """Return the volume that holds a path: that of the deepest mount above it.

    >>> volume_of("/state/a", {"/": "root", "/state": "state"})
    'state'
    >>> volume_of("/statement", {"/state": "state"}) is None
    True
    """
    above = [each for each in mounts if _below(path, each)]
    return mounts[max(above, key=len)] if above else None


def _below(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)
