"""Make the golden savepoint of a version: `make golden-savepoint CODE=folder TO=archive`.

CODE is a checkout of that version. Its own commands read the first files of the stream and save
what the job knows then. The archive has the savepoint, all files, and the rows of the database:
`saved.json`.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from holdfast.deploy.local.postgres import EmbeddedPostgres
from tests.support.golden.folders import dump, pack, unpack
from tests.support.golden.version import FIRST, FIRST_FILES, Version
from tests.support.servers.databases import server_directory


def main(code: Path, archive: Path) -> None:
    """Make the archive."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        server_directory() as directory,
        EmbeddedPostgres(directory) as server,
    ):
        folder = Path(scratch).resolve()
        version = Version(code.resolve(), folder, server.make_database("saved"))
        version.begin()
        assert version.read(FIRST, range(FIRST_FILES)) == 0
        assert version.save() == 0
        (folder / "saved.json").write_text(json.dumps(dump(version.dsn), indent=0))
        shutil.rmtree(folder / "checkpoint")
        pack(folder, archive)


def unpack_savepoint(archive: Path, folder: Path) -> None:
    """Make the folder of the archive; the savepoint is valid with the paths that it has there."""
    unpack(archive, folder)
    savepoint = folder / "savepoint"
    manifest = json.loads((savepoint / "manifest.json").read_text())
    for file in manifest["files"]:
        if file["name"].startswith("sources/"):
            content = (savepoint / file["name"]).read_bytes()
            file |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_manifest(savepoint, manifest)


def write_manifest(savepoint: Path, manifest: dict[str, object]) -> None:
    """Write a manifest with the checksum of its content, as version 1 has it."""
    content = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    signed = content | {"checksum": hashlib.sha256(text.encode()).hexdigest()}
    (savepoint / "manifest.json").write_text(json.dumps(signed))
    (savepoint / ".manifest.json.crc").unlink(missing_ok=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
