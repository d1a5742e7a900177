"""`holdfast job run` on a topic, until it has read what is there."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deploy.local.java import spark_environment
from tests.support.job.job_process import HOLDFAST, QUICK, SECONDS
from tests.support.job.jobs import POLICY
from tests.support.kafka.fixtures import JARS


def run_to_end(
    folder: Path,
    dsn: str,
    servers: str,
    topic: str,
    stream: str,
    *options: str,
    secrets: Mapping[str, str],
) -> subprocess.CompletedProcess[str]:
    """Run it; its checkpoint is `folder/STREAM`. `secrets` are variables of its environment."""
    (folder / "policy.toml").write_text(POLICY)
    return subprocess.run(
        [
            *(*HOLDFAST, "run", "--bootstrap-servers", servers, "--topic", topic),
            *("--checkpoint", str(folder / stream), "--stream", stream, "--idle-timeout", "0"),
            *("--policy", str(folder / "policy.toml"), "--available-now", *QUICK, *options),
        ],
        env={
            **os.environ,
            **spark_environment(),
            "HOLDFAST_DSN": dsn,
            "HOLDFAST_KAFKA_JARS": str(JARS / "connector"),
            **secrets,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
