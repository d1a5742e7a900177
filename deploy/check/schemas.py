"""Each manifest fits the schema of its kind, strictly: an unknown field is a fault."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import kubernetes_validate
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from holdfast.deploy.check.pods import pods
from holdfast.deploy.check.project import Document

KUBERNETES = "1.32"
"""The version whose schemas hold, and the oldest that the manifests are meant for."""

KUSTOMIZE = "kustomize.config.k8s.io"

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
LABELS = {"type": "object", "additionalProperties": TEXT}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": 1}


_SPARK = _object(
    "runtimeVersions",
    "sparkConf",
    mainClass=TEXT,
    jars=TEXT,
    pyFiles=TEXT,
    driverArgs=_list(TEXT),
    deploymentMode={"enum": ["ClusterMode", "ClientMode"]},
    sparkConf=LABELS,
    runtimeVersions=_object("sparkVersion", sparkVersion=TEXT, scalaVersion=TEXT, jdkVersion=TEXT),
    driverSpec=_object(podTemplateSpec={"type": "object"}),
    executorSpec=_object(podTemplateSpec={"type": "object"}),
    applicationTolerations=_object(
        restartConfig=_object(
            restartPolicy={"enum": ["Always", "Never", "OnFailure", "OnInfrastructureFailure"]},
            maxRestartAttempts=NUMBER,
            restartBackoffMillis=NUMBER,
            restartCounterResetMillis=NUMBER,
        ),
        applicationTimeoutConfig=_object(
            driverStartTimeoutMillis=NUMBER,
            executorStartTimeoutMillis=NUMBER,
            forceTerminationGracePeriodMillis=NUMBER,
            driverReadyTimeoutMillis=NUMBER,
            terminationRequeuePeriodMillis=NUMBER,
        ),
        instanceConfig=_object(minExecutors=NUMBER, initExecutors=NUMBER, maxExecutors=NUMBER),
        resourceRetainPolicy={"enum": ["Always", "Never", "OnFailure"]},
        resourceRetainDurationMillis=NUMBER,
        ttlAfterStopMillis=NUMBER,
    ),
)

_MONITOR = _object(
    "selector",
    "endpoints",
    selector=_object("matchLabels", matchLabels=LABELS),
    namespaceSelector={"type": "object"},
    endpoints=_list(
        _object("port", port=TEXT, path=TEXT, interval=TEXT, scrapeTimeout=TEXT, scheme=TEXT)
    ),
)

_RULES = _object(
    "groups",
    groups=_list(
        _object(
            "name",
            "rules",
            name=TEXT,
            interval=TEXT,
            rules=_list(
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["expr"],
                    "oneOf": [{"required": ["alert"]}, {"required": ["record"]}],
                    "properties": {
                        "alert": TEXT,
                        "record": TEXT,
                        "expr": TEXT,
                        "for": TEXT,
                        "labels": LABELS,
                        "annotations": LABELS,
                    },
                }
            ),
        )
    ),
)

CUSTOM: Mapping[tuple[str, str], Any] = {
    ("spark.apache.org/v1", "SparkApplication"): _SPARK,
    ("monitoring.coreos.com/v1", "ServiceMonitor"): _MONITOR,
    ("monitoring.coreos.com/v1", "PrometheusRule"): _RULES,
}
"""The fields that are used here of kinds that Kubernetes does not have. `make deploy-check-api`
compares with the definitions of their operators."""


def faults(documents: list[Document]) -> Iterator[str]:
    """Yield what does not fit; the text names the field."""
    for document in documents:
        version = str(document.content.get("apiVersion", ""))
        if version.startswith(KUSTOMIZE):
            continue
        if (version, document.kind) in CUSTOM:
            yield from _custom(document, CUSTOM[version, document.kind])
        else:
            yield from _own(document, document.content)
    for pod in pods(documents):
        if pod.part:
            # The operator's schema has whole pods, and Spark fills in what these leave out.
            image = "filled-in"
            containers = [{"image": image} | each for each in pod.spec.get("containers", ())]
            filled = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": pod.metadata,
                "spec": pod.spec | {"containers": containers},
            }
            yield from _own(Document(str(pod), filled), filled)


def _own(document: Document, content: dict[str, Any]) -> Iterator[str]:
    fault = _judged(json.dumps(content))
    if fault is not None:
        yield f"{document}: {fault}"


@cache
def _judged(text: str) -> str | None:
    """Return what is wrong with a document as JSON. The library reads 2 MB for each."""
    try:
        kubernetes_validate.validate(json.loads(text), KUBERNETES, strict=True)
    except kubernetes_validate.SchemaNotFoundError as error:
        return str(error.message)
    except ValidationError as error:
        return _located(error)
    return None


def _custom(document: Document, schema: Any) -> Iterator[str]:
    for error in Draft202012Validator(schema).iter_errors(document.spec):
        yield f"{document}: {_located(error)}"


def _located(error: ValidationError) -> str:
    path = ".".join(map(str, error.absolute_path))
    return f"{path or 'the top'}: {error.message[:300]}"
