"""`holdfast job run` on a topic."""

import os
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from holdfast.deploy.local.java import spark_environment
from tests.support.job.job_process import HOLDFAST, QUICK, SECONDS, JobProcess, running
from tests.support.job.jobs import POLICY
from tests.support.kafka.fixtures import JARS

CONNECTOR = {"HOLDFAST_KAFKA_JARS": str(JARS / "connector")}
"""Where the job finds Spark's connector."""


def words(folder: Path, servers: str, topic: str, stream: str, *options: str) -> list[str]:
    """Return the command; its checkpoint is `folder/STREAM`."""
    (folder / "policy.toml").write_text(POLICY)
    return [
        *(*HOLDFAST, "run", "--bootstrap-servers", servers, "--topic", topic),
        *("--checkpoint", str(folder / stream), "--stream", stream),
        *("--policy", str(folder / "policy.toml"), *QUICK, *options),
    ]


def run_to_end(
    folder: Path,
    dsn: str,
    servers: str,
    topic: str,
    stream: str,
    *options: str,
    secrets: Mapping[str, str],
) -> subprocess.CompletedProcess[str]:
    """Run it until it has read what is there. `secrets` are variables of its environment."""
    return subprocess.run(
        words(folder, servers, topic, stream, "--idle-timeout", "0", "--available-now", *options),
        env={**os.environ, **spark_environment(), "HOLDFAST_DSN": dsn, **CONNECTOR, **secrets},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def topic_process(
    folder: Path,
    dsn: str,
    servers: str,
    topic: str,
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> AbstractContextManager[JobProcess]:
    """Start it as a service, with the stream and the checkpoint `payouts`."""
    return running(
        folder,
        dsn,
        words(folder, servers, topic, "payouts", *options),
        {**CONNECTOR, **(environment or {})},
    )
