"""The commands of one version of Holdfast, on one version of Spark, over a stream of files."""

import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from holdfast.deploy.local.java import spark_environment
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.job.job_process import MARK, SECONDS, Family
from tests.support.job.job_stream import OPTIONS, stream
from tests.support.job.jobs import POLICY

SEED = 24
FILES = 16
FIRST_FILES = 8
"""So many files are read under the first policy."""

FIRST = POLICY
THEN = f"""{POLICY.replace("2026-11-01", "2026-11-02")}
[[default]]
limit_minor = 3_000_000
release_level_minor = 1_000_000
effective_from = 2024-11-04T13:30:00Z
"""


@dataclass(frozen=True)
class Version:
    """A checkout, a folder for the files, and a database."""

    code: Path
    folder: Path
    dsn: str
    spark: Path | None = None
    """Where another version of PySpark is installed; None for the one of the tests."""

    def begin(self) -> None:
        """Make the schema of the database, and all files of the stream."""
        assert self.command("db", "upgrade") == 0
        stream(SEED, FILES).put(self.folder / "later")
        (self.folder / "events").mkdir()

    def read(
        self,
        policy: str,
        files: range,
        *options: str,
        checkpoint: str = "checkpoint",
        failpoints: str = "",
    ) -> int:
        """Read the files of these numbers; returns the exit code of the job."""
        for name in (f"{number:03}.json" for number in files):
            (self.folder / "later" / name).rename(self.folder / "events" / name)
        (self.folder / "policy.toml").write_text(policy)
        return self.command(
            *("job", "run", "--path", str(self.folder / "events"), "--available-now"),
            *("--checkpoint", str(self.folder / checkpoint), "--stream", "payouts"),
            *("--policy", str(self.folder / "policy.toml"), "--max-files-per-trigger", "1"),
            *OPTIONS,
            *options,
            failpoints=failpoints,
        )

    def save(self) -> int:
        """Make a savepoint of the checkpoint; returns the exit code."""
        places = {"--checkpoint": "checkpoint", "--to": "savepoint"}
        words = [word for key, name in places.items() for word in (key, str(self.folder / name))]
        return self.command("job", "savepoint", *words)

    def command(self, *words: str, failpoints: str = "") -> int:
        """Run a command to its end, and end everything that it has started."""
        mark = secrets.token_hex(8)
        paths = [str(path) for path in (self.code, self.spark) if path]
        settings = {"PYTHONPATH": os.pathsep.join(paths), ENVIRONMENT: failpoints, MARK: mark}
        started = subprocess.Popen(
            [sys.executable, "-m", "holdfast.dispatcher.cli.main", *words],
            cwd=self.code,
            env={**os.environ, **spark_environment(), "HOLDFAST_DSN": self.dsn, **settings},
        )
        try:
            return started.wait(SECONDS)
        finally:
            Family(started, self.folder, mark).end()
