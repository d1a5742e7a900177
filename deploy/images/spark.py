"""The entry point of the image `job`: a `holdfast` command, or what Spark asks for on Kubernetes.

Spark starts its pods with the argument `driver` or `executor` and puts the rest into variables,
which its own image reads by a shell script. This one has the same order of classes and options. It
becomes the program that it starts, so SIGTERM reaches the JVM.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence

_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"

_OF_THE_BACKEND = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def command(words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return the program and its arguments for the container's arguments and its variables.

    Raises `KeyError` with the name of a variable that Spark always sets.

    >>> command(["job", "run"], {})
    ['holdfast', 'job', 'run']
    """
    if words[:1] == ["driver"]:
        return _driver(words[1:], variables)
    if words[:1] == ["executor"]:
        return _executor(variables)
    return ["holdfast", *words]


def _driver(words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    address = variables["SPARK_DRIVER_BIND_ADDRESS"]
    settings = (
        f"spark.driver.bindAddress={address}",
        f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}",
    )
    options = [word for setting in settings for word in ("--conf", setting)]
    submit = f"{variables['SPARK_HOME']}/bin/spark-submit"
    return [submit, *options, "--deploy-mode", "client", *words]


def _executor(variables: Mapping[str, str]) -> list[str]:
    memory = variables["SPARK_EXECUTOR_MEMORY"]
    return [
        f"{variables['JAVA_HOME']}/bin/java",
        *_java_options(variables),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        _class_path(variables),
        BACKEND,
        *(
            word
            for name, variable in _OF_THE_BACKEND.items()
            for word in (name, variables[variable])
        ),
    ]


def _java_options(variables: Mapping[str, str]) -> list[str]:
    by_number = {
        int(match[1]): value
        for name, value in variables.items()
        if (match := _JAVA_OPTION.fullmatch(name)) is not None
    }
    return [by_number[number] for number in sorted(by_number)]


def _class_path(variables: Mapping[str, str]) -> str:
    home = variables["SPARK_HOME"]
    parts = (
        variables.get("SPARK_CONF_DIR", f"{home}/conf"),
        variables.get("SPARK_EXTRA_CLASSPATH", ""),
        variables.get("SPARK_CLASSPATH", ""),
        f"{home}/jars/*",
        variables.get("HADOOP_CONF_DIR", ""),
    )
    return ":".join(part for part in parts if part)


def main() -> None:
    """Become the program."""
    try:
        words = command(sys.argv[1:], os.environ)
    except KeyError as missing:
        sys.exit(f"the variable {missing} is not set, which Spark sets in its pods on Kubernetes")
    os.execvp(words[0], words)  # noqa: S606 - without a shell, as meant


if __name__ == "__main__":
    main()
