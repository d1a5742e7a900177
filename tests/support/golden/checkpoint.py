"""Make the golden checkpoint of a version: `make golden-checkpoint CODE=folder TO=archive`.

CODE is a checkout of that version. Its own command runs twice over the same files, under a second
policy from the ninth file on: in peace, and until the driver is killed after its last batch was
written and before Spark recorded it. The archive has the folder of the second run, and in it the
rows of the database after each: `peace.json` and `killed.json`.
"""

import json
import signal
import sys
import tempfile
from pathlib import Path

from holdfast.deploy.local.postgres import EmbeddedPostgres
from tests.support.golden.folders import dump, pack
from tests.support.golden.version import FILES, FIRST, FIRST_FILES, THEN, Version
from tests.support.servers.databases import server_directory

KILLED_AT = 5
"""The batch of the second start, counted from 1, that is written and not recorded."""


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
        killed = versions["killed"].read(THEN, rest, failpoints=f"S9=kill@{KILLED_AT}")
        assert killed == -signal.SIGKILL
        folder = versions["killed"].folder
        (folder / "later").rmdir()
        for name, version in versions.items():
            rows = json.dumps(dump(version.dsn), indent=0)
            (folder / f"{name}.json").write_text(rows.replace(str(version.folder), str(folder)))
        pack(folder, archive)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
