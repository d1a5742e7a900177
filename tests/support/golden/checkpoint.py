"""Make the golden checkpoint of a version: `make golden CODE=folder TO=archive`.

CODE is a checkout of that version. Its own command runs twice over the same files, under a second
policy from the ninth file on: in peace, and until the driver is killed after its last batch was
written and before Spark recorded it. The archive has the folder of the second run, and in it the
rows of the database after each: `peace.json` and `killed.json`.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from deploy.local.java import spark_environment
from deploy.local.postgres import EmbeddedPostgres
from sink.contract.failpoints import ENVIRONMENT
from tests.support.golden.folders import pack
from tests.support.golden.rows import dump
from tests.support.job.job_family import MARK, Family
from tests.support.job.job_process import SECONDS
from tests.support.job.job_stream import OPTIONS, stream
from tests.support.job.jobs import POLICY
from tests.support.servers.embedded import server_directory

SEED = 24
FILES = 16
FIRST_FILES = 8
"""So many files are read under the first policy."""

KILLED_AT = 5
"""The batch of the second start, counted from 1, that is written and not recorded."""

FIRST, THEN = (
    POLICY,
    f"""{POLICY.replace("2026-11-01", "2026-11-02")}
[[default]]
limit_minor = 3_000_000
release_level_minor = 1_000_000
effective_from = 2024-11-04T13:30:00Z
""",
)


@dataclass(frozen=True)
class Version:
    """The command of a checkout, on a folder and a database."""

    code: Path
    folder: Path
    dsn: str

    def begin(self) -> None:
        """Make the schema of the database, and all files of the stream."""
        assert self.command("db", "upgrade") == 0
        stream(SEED, FILES).put(self.folder / "later")
        (self.folder / "events").mkdir()

    def read(self, policy: str, files: range, failpoints: str = "") -> int:
        """Read the files of these numbers; returns the exit code of the job."""
        for name in (f"{number:03}.json" for number in files):
            (self.folder / "later" / name).rename(self.folder / "events" / name)
        (self.folder / "policy.toml").write_text(policy)
        return self.command(
            *("job", "run", "--path", str(self.folder / "events"), "--available-now"),
            *("--checkpoint", str(self.folder / "checkpoint"), "--stream", "payouts"),
            *("--policy", str(self.folder / "policy.toml"), "--max-files-per-trigger", "1"),
            *OPTIONS,
            failpoints=failpoints,
        )

    def command(self, *words: str, failpoints: str = "") -> int:
        """Run a command to its end, and end everything that it has started."""
        mark = secrets.token_hex(8)
        settings = {"PYTHONPATH": str(self.code), ENVIRONMENT: failpoints, MARK: mark}
        started = subprocess.Popen(
            [sys.executable, "-m", "dispatcher.cli.main", *words],
            cwd=self.code,
            env={**os.environ, **spark_environment(), "HOLDFAST_DSN": self.dsn, **settings},
        )
        try:
            return started.wait(SECONDS)
        finally:
            Family(started, mark, self.folder).end()


def main(code: Path, archive: Path) -> None:
    """Make the archive."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        server_directory() as directory,
        EmbeddedPostgres(directory) as server,
    ):
        versions = {}
        for name in ("peace", "killed"):
            folder = Path(scratch).resolve() / name
            folder.mkdir()
            versions[name] = Version(code.resolve(), folder, server.make_database(name))
            versions[name].begin()
            assert versions[name].read(FIRST, range(FIRST_FILES)) == 0
        rest = range(FIRST_FILES, FILES)
        assert versions["peace"].read(THEN, rest) == 0
        assert versions["killed"].read(THEN, rest, f"S9=kill@{KILLED_AT}") == -signal.SIGKILL
        folder = versions["killed"].folder
        (folder / "later").rmdir()
        for name, version in versions.items():
            rows = json.dumps(dump(version.dsn), indent=0)
            (folder / f"{name}.json").write_text(rows.replace(str(version.folder), str(folder)))
        pack(folder, archive)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
