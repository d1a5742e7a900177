"""What the schemas of single documents cannot see: whether the documents fit each other."""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.deploy.check import policies, workloads
from holdfast.deploy.check.commands import fault_of, filled, unknown_references, unread
from holdfast.deploy.check.pods import RUNS_SPARK, Pod, amount, pods, port_of, ports_of, selects
from holdfast.deploy.check.project import Document, Project
from holdfast.deploy.check.served import LOOPBACK, STOP_MARGIN_SECONDS, Served, served

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")

GRACE_SECONDS = 30
"""Of a pod that says nothing else."""


def faults(project: Project, documents: list[Document]) -> Iterator[str]:
    """Yield what does not fit in the documents of one overlay."""
    all_pods = list(pods(documents))
    maps = {d.name: d.content.get("data") or {} for d in documents if d.kind == "ConfigMap"}
    for pod in all_pods:
        yield from policies.security_faults(pod)
        yield from _references(project, pod, maps)
        yield from _mounts(pod)
        for container in pod.containers:
            yield from _resources(pod, container)
            yield from _container(pod, container)
    for document in documents:
        yield from _selectors(document, all_pods, documents)
        if document.kind == "SparkApplication":
            yield from _spark(project, document)
    running = [each for pod in all_pods for each in workloads.runs(pod, maps)]
    yield from workloads.faults(documents, all_pods, running, maps)
    yield from policies.faults(documents, all_pods, running)


def _resources(pod: Pod, container: dict[str, Any]) -> Iterator[str]:
    if pod.part:
        return  # Spark sets them from its own settings
    resources, where = container.get("resources") or {}, f"{pod}: container {container.get('name')}"
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name in ("cpu", "memory"):
        if name not in requests:
            yield f"{where}: no request of {name}"
    if "memory" not in limits:
        yield f"{where}: no limit of memory"
    for name in requests.keys() & limits.keys():
        if amount(requests[name]) > amount(limits[name]):
            yield f"{where}: requests {requests[name]} of {name}, above its limit {limits[name]}"


def _references(project: Project, pod: Pod, maps: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for container in pod.containers:
        for variable in container.get("env", ()):
            yield from _variable(project, pod, variable, maps)
        for each in container.get("envFrom", ()):
            if (one := each.get("configMapRef")) is not None:
                yield from _map(pod, one["name"], maps)
                for name in sorted(filter(unread, maps.get(one["name"], ()))):
                    yield f"{pod}: nothing reads the variable {name} of {one['name']}"
            if (one := each.get("secretRef")) is not None:
                yield from _secret(project, str(pod), one["name"], "*")
    for volume in pod.spec.get("volumes", ()):
        if (one := volume.get("secret")) is not None:
            yield from _secret(project, str(pod), one["secretName"], "*")
        if (one := volume.get("configMap")) is not None:
            yield from _map(pod, one["name"], maps)


def _variable(
    project: Project, pod: Pod, variable: dict[str, Any], maps: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    source = variable.get("valueFrom") or {}
    if (one := source.get("secretKeyRef")) is not None:
        yield from _secret(project, str(pod), one["name"], one["key"])
    one = source.get("configMapKeyRef")
    if one is not None and one["key"] not in maps.get(one["name"], {}):
        yield f"{pod}: there is no key {one['key']} in a ConfigMap {one['name']}"
    if "value" in variable and variable["name"].endswith(("DSN", "PASSWORD", "TOKEN")):
        yield f"{pod}: {variable['name']} stands in the manifest: refer to a Secret"
    if unread(variable["name"]):
        yield f"{pod}: nothing reads the variable {variable['name']}"


def _map(pod: Pod, name: str, maps: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    if name not in maps:
        yield f"{pod}: there is no ConfigMap {name}"


def _secret(project: Project, where: str, name: str, key: str) -> Iterator[str]:
    keys = project.secrets.get(name)
    if keys is None:
        yield f"{where}: the Secret {name} is not in the list of docs/deploying/kubernetes.md"
    elif key not in keys:
        yield f"{where}: the key {key} of {name} is not in the list of docs/deploying/kubernetes.md"


def _mounts(pod: Pod) -> Iterator[str]:
    volumes = {each["name"] for each in pod.spec.get("volumes", ())}
    claims = pod.document.spec.get("volumeClaimTemplates", ())
    volumes |= {each["metadata"]["name"] for each in claims}
    used = {mount["name"] for each in pod.containers for mount in each.get("volumeMounts", ())}
    for name in sorted(used - volumes):
        yield f"{pod}: there is no volume {name}"
    for name in sorted(volumes - used):
        yield f"{pod}: no container mounts the volume {name}"


def _container(pod: Pod, container: dict[str, Any]) -> Iterator[str]:
    words, where = container.get("args") or [], f"{pod}: container {container.get('name')}"
    if "command" in container:
        yield f"{where}: it replaces the image's entry point"
    if pod.part:
        return  # the arguments are in the SparkApplication
    names = {each["name"]: "1" for each in container.get("env", ())}
    for name in sorted(unknown_references(words, names)):
        yield f"{where}: no variable is named {name}"
    words = filled(words, names)
    if (fault := fault_of(words)) is not None:
        yield f"{where}: {fault}"
        return
    serves = served(words)
    if serves is not None:
        yield from _serving(pod, serves, where)
    for name in PROBES:
        if name in container:
            yield from (
                f"{where}: {name} {fault}" for fault in _probe(pod, container[name], serves)
            )
        elif serves is not None and name == "livenessProbe":
            yield f"{where}: no {name}"


def _serving(pod: Pod, serves: Served, where: str) -> Iterator[str]:
    if serves.host in LOOPBACK:
        yield f"{where}: it listens on {serves.host}, which nobody outside reaches"
    if serves.port not in ports_of(pod).values():
        yield f"{where}: it listens on {serves.port}, which is no containerPort"
    grace = pod.spec.get("terminationGracePeriodSeconds", GRACE_SECONDS)
    if grace < serves.stop_seconds + STOP_MARGIN_SECONDS:
        yield (
            f"{where}: it may take {serves.stop_seconds:g} s to stop,"
            f" and terminationGracePeriodSeconds is {grace}"
        )


def _probe(pod: Pod, probe: dict[str, Any], serves: Served | None) -> Iterator[str]:
    question = probe.get("httpGet")
    if question is None or serves is None:
        yield "asks nothing that the command serves"
        return
    port = port_of(pod, question["port"])
    if port is None:
        yield f"asks the port {question['port']}, which no container has"
        return
    yield from serves.faults(question.get("path", "/"), port)


def _selectors(document: Document, all_pods: list[Pod], documents: list[Document]) -> Iterator[str]:
    spec, kind = document.spec, document.kind
    if kind in {"Deployment", "StatefulSet"}:
        chosen = spec["selector"].get("matchLabels", {})
        labels = spec["template"]["metadata"].get("labels", {})
        if not chosen or not selects(chosen, labels):
            yield f"{document}: its selector {chosen} does not match the labels of its pods"
    elif kind == "Service":
        yield from _service(document, all_pods)
    elif kind == "PodDisruptionBudget":
        chosen = spec["selector"].get("matchLabels", {})
        if not any(selects(chosen, pod.labels) for pod in all_pods):
            yield f"{document}: its selector {chosen} matches no pod"
    elif kind == "NetworkPolicy":
        yield from _policy(document, all_pods)
    elif kind == "ServiceMonitor":
        yield from _monitor(document, documents)
    elif kind == "HorizontalPodAutoscaler":
        yield from _autoscaler(document, documents)


def _service(document: Document, all_pods: list[Pod]) -> Iterator[str]:
    selector = document.spec.get("selector", {})
    chosen = [pod for pod in all_pods if selector and selects(selector, pod.labels)]
    if not chosen:
        yield f"{document}: its selector {selector} matches no pod"
    for port in document.spec.get("ports", ()):
        target = port.get("targetPort", port["port"])
        if chosen and not any(port_of(pod, target) for pod in chosen):
            yield f"{document}: no pod has the port {target}"


def _autoscaler(document: Document, documents: list[Document]) -> Iterator[str]:
    target = document.spec["scaleTargetRef"]
    named = (target["kind"], target["name"])
    scaled = [each for each in documents if (each.kind, each.name) == named]
    if not scaled:
        yield f"{document}: there is no {target['kind']} {target['name']}"
    elif "replicas" in scaled[0].spec:
        yield f"{document}: {target['name']} sets replicas too, so each `apply` sets it back"


def _policy(document: Document, all_pods: list[Pod]) -> Iterator[str]:
    spec = document.spec
    selectors = [spec["podSelector"]]
    for rules, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(rules, ()):
            selectors += [
                each["podSelector"] for each in rule.get(peers, ()) if "podSelector" in each
            ]
    for selector in selectors:
        labels = selector.get("matchLabels", {})
        if not any(selects(labels, pod.labels) for pod in all_pods):
            yield f"{document}: its selector {labels} matches no pod"
    own = [
        pod for pod in all_pods if selects(spec["podSelector"].get("matchLabels", {}), pod.labels)
    ]
    for rule in spec.get("ingress", ()):
        for port in rule.get("ports", ()):
            named = port["port"]
            # Spark opens its own ports, by number, in containers that it fills in itself.
            spark = isinstance(named, int) and any(pod.part for pod in own)
            if own and not spark and not any(port_of(pod, named) for pod in own):
                yield f"{document}: no pod has the port {named}"


def _monitor(document: Document, documents: list[Document]) -> Iterator[str]:
    labels = document.spec["selector"].get("matchLabels", {})
    services = [
        each for each in documents if each.kind == "Service" and selects(labels, each.labels)
    ]
    ports = {port.get("name") for each in services for port in each.spec.get("ports", ())}
    if not services:
        yield f"{document}: its selector {labels} matches no Service"
    for endpoint in document.spec.get("endpoints", ()):
        if services and endpoint.get("port") not in ports:
            yield f"{document}: no Service has a port {endpoint.get('port')}"


def _spark(project: Project, document: Document) -> Iterator[str]:
    spec = document.spec
    words = ["job", *spec.get("driverArgs", ())]
    if (fault := fault_of(words)) is not None:
        yield f"{document}: {fault}"
    settings = spec.get("sparkConf", {})
    prefix = "spark.kubernetes.driver.secretKeyRef."
    for name, value in settings.items():
        if name.startswith(prefix):
            secret, _, key = value.partition(":")
            yield from _secret(project, str(document), secret, key)
    for pod in pods([document]):
        name = settings.get(f"spark.kubernetes.{pod.part}.podTemplateContainerName")
        names = {each["name"] for each in pod.containers}
        if name not in names and not names & set(RUNS_SPARK):
            yield f"{pod}: Spark does not know which container is its own"
    serves = served(words)
    for pod in pods([document]):
        if serves is not None and pod.part == "driver":
            yield from _serving(pod, serves, str(pod))
