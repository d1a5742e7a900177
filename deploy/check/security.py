"""Every pod fits the standard `restricted` of Pod Security, and a little more."""

from collections.abc import Iterator
from typing import Any

from holdfast.deploy.check.pods import Pod

USER_MIN = 10_000
"""Above the users of nodes."""


def faults(pod: Pod) -> Iterator[str]:
    """Yield what a pod may do and does not need."""
    given = pod.spec.get("securityContext") or {}
    if given.get("runAsNonRoot") is not True:
        yield f"{pod}: runAsNonRoot is not set"
    if not isinstance(given.get("runAsUser"), int) or given["runAsUser"] < USER_MIN:
        yield f"{pod}: runAsUser is not a number of {USER_MIN} or more"
    if (given.get("seccompProfile") or {}).get("type") != "RuntimeDefault":
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
        yield from _container(pod, container)


def _container(pod: Pod, container: dict[str, Any]) -> Iterator[str]:
    given, name = container.get("securityContext") or {}, container.get("name")
    if given.get("allowPrivilegeEscalation") is not False:
        yield f"{pod}: container {name}: allowPrivilegeEscalation is not false"
    if given.get("readOnlyRootFilesystem") is not True:
        yield f"{pod}: container {name}: readOnlyRootFilesystem is not true"
    if (given.get("capabilities") or {}).get("drop") != ["ALL"]:
        yield f"{pod}: container {name}: capabilities are not all dropped"
    if given.get("privileged"):
        yield f"{pod}: container {name}: it is privileged"
