"""What pods may reach, by their network policies, and what they may do."""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.deploy.check.pods import Pod, port_of, selects
from holdfast.deploy.check.project import Document
from holdfast.deploy.check.served import served
from holdfast.deploy.check.workloads import Runs
from holdfast.sink.contract.numbers import is_whole

Needs = dict[str, set[tuple[str, int]]]
"""What a pod must reach outside, each by any one of some ports."""

NAMES = {"names (DNS) over UDP": {("UDP", 53)}, "names (DNS) over TCP": {("TCP", 53)}}
POSTGRES, HTTPS, KUBERNETES = ("TCP", 5432), ("TCP", 443), ("TCP", 6443)


def faults(documents: list[Document], pods: list[Pod], running: list[Runs]) -> Iterator[str]:
    """Yield what the policies of one overlay stop, and what they leave open."""
    policies = [each for each in documents if each.kind == "NetworkPolicy"]
    for policy in policies:
        yield from _open(policy)
    for pod in pods:
        own = [each for each in policies if _selects(each, pod)]
        for way in ("Ingress", "Egress"):
            if not any(way in _types(each) for each in own):
                yield f"{pod}: no network policy limits its {way.lower()}"
        mine = [each for each in running if each.pod is pod]
        out = _ports(own)
        for what, ports in _needs(pod, mine).items():
            if not ports & out:
                yield f"{pod}: no network policy lets it reach {what}"
        for each in mine:
            yield from _unreachable_port(each, own)


def _needs(pod: Pod, running: list[Runs]) -> Needs:
    needs: Needs = {name: set(ports) for name, ports in NAMES.items()}
    for each in running:
        needs["Postgres"] = {POSTGRES}
        if each.part.name == "dispatcher":
            needs["receivers"] = {HTTPS}
        if pod.part == "driver":
            needs["the API server"] = {HTTPS, KUBERNETES}
        brokers = str(each.options.get("bootstrap_servers") or "")
        for broker in filter(None, brokers.split(",")):
            port = broker.rpartition(":")[2]
            if is_whole(port):
                needs[f"the broker {broker}"] = {("TCP", int(port))}
    return needs


def _unreachable_port(each: Runs, own: list[Document]) -> Iterator[str]:
    """Yield a port that the command serves and nobody may reach."""
    serves = served(each.words)
    if serves is None:
        return
    for policy in own:
        for rule in policy.spec.get("ingress") or ():
            for port in rule.get("ports") or ():
                if port_of(each.pod, port["port"]) == serves.port:
                    return
    yield f"{each}: no network policy lets anybody reach its port {serves.port}"


def _ports(own: list[Document]) -> set[tuple[str, int]]:
    """Return the ports at which pods may reach what is not one of the pods here."""
    return {
        (port.get("protocol", "TCP"), port["port"])
        for policy in own
        for rule in policy.spec.get("egress") or ()
        if not rule.get("to") or any(_outside(peer) for peer in rule["to"])
        for port in rule.get("ports") or ()
    }


def _outside(peer: Mapping[str, Any]) -> bool:
    return "ipBlock" in peer or "namespaceSelector" in peer


def _open(policy: Document) -> Iterator[str]:
    for rule in policy.spec.get("egress") or ():
        if not rule.get("ports"):
            yield f"{policy}: an egress rule names no port, so everything is let out"
    for rule in policy.spec.get("ingress") or ():
        peers = rule.get("from") or ()
        anybody = [p for p in peers if not any((s or {}).get("matchLabels") for s in p.values())]
        if not peers or [p for p in anybody if "ipBlock" not in p]:
            yield f"{policy}: an ingress rule lets anybody in"


def _types(policy: Document) -> set[str]:
    spec = policy.spec
    return set(spec.get("policyTypes") or {"Ingress", *(["Egress"] if "egress" in spec else ())})


def _selects(policy: Document, pod: Pod) -> bool:
    return selects(policy.spec["podSelector"].get("matchLabels") or {}, pod.labels)


USER_MIN = 10_000
"""Above the users of nodes."""


def security_faults(pod: Pod) -> Iterator[str]:
    """Yield what a pod may do beyond `restricted` of Pod Security, and a little more."""
    context = pod.spec.get("securityContext") or {}
    if context.get("runAsNonRoot") is not True:
        yield f"{pod}: runAsNonRoot is not set"
    if not isinstance(context.get("runAsUser"), int) or context["runAsUser"] < USER_MIN:
        yield f"{pod}: runAsUser is not a number of {USER_MIN} or more"
    if (context.get("seccompProfile") or {}).get("type") != "RuntimeDefault":
        yield f"{pod}: the seccomp profile is not RuntimeDefault"
    for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"):
        if pod.spec.get(name):
            yield f"{pod}: {name} is set"
    if pod.part != "driver" and pod.spec.get("automountServiceAccountToken") is not False:
        yield f"{pod}: the token of its account is mounted, and it does not ask the API server"
    for volume in pod.spec.get("volumes", ()):
        if "hostPath" in volume:
            yield f"{pod}: volume {volume['name']} is a path of the node"
    for container in pod.containers:
        yield from _container_security(pod, container)


def _container_security(pod: Pod, container: dict[str, Any]) -> Iterator[str]:
    context, name = container.get("securityContext") or {}, container.get("name")
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{pod}: container {name}: allowPrivilegeEscalation is not false"
    if context.get("readOnlyRootFilesystem") is not True:
        yield f"{pod}: container {name}: readOnlyRootFilesystem is not true"
    if (context.get("capabilities") or {}).get("drop") != ["ALL"]:
        yield f"{pod}: container {name}: capabilities are not all dropped"
    if context.get("privileged"):
        yield f"{pod}: container {name}: it is privileged"
