"""The pods of a set of manifests, whatever makes them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from holdfast.deploy.check.project import Document

_FORM = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")

UNITS: dict[str | None, Decimal] = {
    None: Decimal(1),
    "m": Decimal(1) / 1000,
    **{name: Decimal(1000) ** power for power, name in enumerate("kMGT", 1)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGT", 1)},
}


def amount(text: str | float) -> Decimal:
    """Return an amount in whole processors or bytes.

    Raises `ValueError` for another form.

    >>> amount("500m"), amount("1Ki")
    (Decimal('0.500'), Decimal('1024'))
    """
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text} is no amount")
    return Decimal(match[1]) * UNITS[match[2]]


TEMPLATES = ("Deployment", "StatefulSet", "Job", "DaemonSet", "ReplicaSet")

RUNS_SPARK = ("spark-kubernetes-driver", "spark-kubernetes-executor")

SPARK = "spark.kubernetes."


@dataclass(frozen=True)
class Pod:
    """A template of pods, and which document it stands in."""

    document: Document
    metadata: dict[str, Any]
    spec: dict[str, Any]
    part: str = ""
    """`driver` or `executor` of a SparkApplication."""

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.metadata.get("labels") or {})

    @property
    def containers(self) -> list[dict[str, Any]]:
        return [*self.spec.get("containers", ()), *self.spec.get("initContainers", ())]

    def __str__(self) -> str:
        return f"{self.document}{' ' if self.part else ''}{self.part}"


def pods(documents: Iterable[Document]) -> Iterator[Pod]:
    """Yield every template of pods."""
    for document in documents:
        spec = document.spec
        if document.kind in TEMPLATES:
            template = spec.get("template", {})
            yield Pod(document, template.get("metadata", {}), template.get("spec", {}))
        elif document.kind == "CronJob":
            template = spec.get("jobTemplate", {}).get("spec", {}).get("template", {})
            yield Pod(document, template.get("metadata", {}), template.get("spec", {}))
        elif document.kind == "SparkApplication":
            for part in ("driver", "executor"):
                template = spec.get(f"{part}Spec", {}).get("podTemplateSpec", {})
                yield Pod(document, template.get("metadata", {}), template.get("spec", {}), part)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Return whether `matchLabels` hold for labels."""
    return selector.items() <= labels.items()


def ports_of(pod: Pod) -> dict[str, int]:
    """Return the ports that the containers name."""
    return {
        str(port.get("name", port["containerPort"])): int(port["containerPort"])
        for container in pod.containers
        for port in container.get("ports", ())
    }


def port_of(pod: Pod, named: str | int) -> int | None:
    """Return the number of a port, by its name or number, or None where no container has it."""
    ports = ports_of(pod)
    if isinstance(named, int):
        return named if named in ports.values() else None
    return ports.get(named)
