"""What `job checkpoints` and savepoints ask of an object store: by page, in bulk, nothing twice.

The checkpoint is that of a real job on S3, in a bucket with versions and with an upload that was
never completed. `make test-remote` runs it.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.spark_app.checkpoint_manager.folder import Folder
from holdfast.spark_app.checkpoint_manager.prune import pruned
from holdfast.spark_app.checkpoint_manager.restore import restored
from holdfast.spark_app.checkpoint_manager.trees import RemoteTree
from holdfast.spark_app.checkpoint_manager.verify import verified
from holdfast.spark_app.savepoint.folder import SavepointFolder
from tests.support.job.job_stream import published
from tests.support.job.jobs import Play, busy
from tests.support.servers.places import in_session
from tests.support.servers.s3 import S3, s3

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.rest, pytest.mark.long, pytest.mark.timeout(1800)]

FILES = 8
NAMES = 10_000
"""So many that no batch needs: the state of attempts that failed."""

PAGE = 5_000
"""Names of a page, as Hadoop's client asks for them."""

BULK = 250
"""Names that one request removes, by default of Hadoop's client."""


class Made(NamedTuple):
    """A job that has read all files, and its store."""

    play: Play
    uri: str
    store: S3

    @property
    def bucket(self) -> str:
        return self.uri.rpartition("/")[2]

    def folder(self) -> Folder:
        return Folder(RemoteTree(self.play.spark, f"{self.uri}/checkpoint"))

    def asked(self) -> tuple[Counter[str], Counter[str]]:
        """The requests since the last call by kind, and how often each object was read."""
        kinds: Counter[str] = Counter()
        reads: Counter[str] = Counter()
        for each in self.store.requests():
            kind = each["method"]
            if each["copied"]:
                kind = "COPY"
            elif "list-type" in each["query"]:
                kind = "LIST"
            elif kind == "GET":
                reads[each["path"]] += 1
            kinds[kind] += 1
        return kinds, reads


@pytest.fixture(scope="module")
def made(shared_play: Play, spark: "SparkSession") -> Iterator[Made]:
    with s3() as store, in_session(store, spark) as uri:
        bucket = uri.rpartition("/")[2]
        store.keep_versions(bucket)
        store.begin_upload("checkpoint/offsets/3", bucket)
        play = replace(shared_play, options={"checkpoint": f"{uri}/checkpoint"})
        play.put(*(busy(number, number * 7) for number in range(FILES)))
        play.command()
        yield Made(play, uri, store)


def test_s3_checkpoint_of_10000_names_is_read_and_pruned_by_page(made: Made) -> None:
    before = published(made.play.dsn)
    prefix = "checkpoint/state/0/0/1_000"
    made.store.fill(prefix, NAMES, "-0000-0000-0000-000000000000.changelog", bucket=made.bucket)
    made.asked()
    folder = made.folder()
    kinds, _ = made.asked()
    # One more asks whether there is anything.
    assert kinds["LIST"] <= NAMES / PAGE + 2, kinds
    assert kinds.total() - kinds["LIST"] <= 1, kinds
    answer, code = verified(folder)
    assert code == ExitCode.DEGRADED, answer["advice"]
    kinds, reads = made.asked()
    # A file without content is not asked for; the listing has said how large each of them is.
    filled = {name for name, stat in folder.files.items() if stat.size}
    assert (kinds["GET"], kinds["HEAD"], set(reads.values())) == (len(filled), 0, {1})
    removed = pruned(made.folder(), 2, 0, dry_run=False)["removed_files"]
    kinds, reads = made.asked()
    assert len(removed) > NAMES
    assert kinds["POST"] <= len(removed) / BULK + 2, kinds
    assert (kinds["DELETE"], set(reads.values())) == (0, {1})
    answer, code = verified(made.folder())
    assert code == ExitCode.OK, answer
    made.play.command()
    assert published(made.play.dsn) == before


def test_s3_checkpoint_goes_back_by_copies_of_the_store(made: Made) -> None:
    before = published(made.play.dsn)
    batch = made.folder().batches("commits")[-2]
    made.asked()
    answer = restored(made.folder(), batch, made.play.dsn, dry_run=False)
    kinds, reads = made.asked()
    moved = len(answer["moved_files"])
    assert moved >= 2
    # The last one is the intent, which ends the restore.
    assert kinds["COPY"] == moved + 1
    # It is read again once no driver can change it any more, and only then changed.
    assert max(reads.values()) <= 2, reads
    made.play.command()
    assert published(made.play.dsn) == before
    assert pruned(made.folder(), 2, 0, dry_run=False)["removed_folders"] == ["removed-1"]
    assert verified(made.folder())[1] == ExitCode.OK


def test_savepoint_of_a_checkpoint_on_s3_reads_each_of_its_files_once(made: Made) -> None:
    place = f"{made.uri}/saved"
    manifest = made.play.save(f"{made.uri}/checkpoint", place)
    made.asked()
    folder = SavepointFolder(made.play.spark, place)
    folder.verify(folder.manifest().files)
    kinds, reads = made.asked()
    asked = len(manifest.files) + 1
    # The client of this process may still have what it has read back after it was written.
    assert (kinds["HEAD"], kinds["LIST"], set(reads.values())) == (asked, 0, {1})
    assert kinds["GET"] <= asked
