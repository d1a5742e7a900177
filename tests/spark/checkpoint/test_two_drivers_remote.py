"""Two real drivers of the job on one checkpoint on S3 or HDFS: a write of the older one is held.

While its request is held on its way, the newer one continues; then it is carried out. Nothing is
lost or repeated, and the older one ends by name. Each pair pays three starts of a JVM, so none is
in CI: `make test-remote` plays all.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from holdfast.deploy.release import checkpoint_jar
from tests.support.job.two_drivers import (
    SAVEPOINTS,
    WRITES,
    HdfsStream,
    StoreStream,
    Stream,
    both_stand,
    older_stands,
    older_stands_before_it_took_the_stream,
)
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.gcs import gcs
from tests.support.servers.hdfs import hdfs
from tests.support.servers.s3 import s3
from tests.support.servers.s3_gateway import gateway

pytestmark = [pytest.mark.rest, pytest.mark.long, pytest.mark.timeout(1200)]

Begin = Callable[[Path, str], Stream]

PLACES = ("on_s3", "on_hdfs")


@pytest.fixture(scope="module")
def on_s3() -> Iterator[Begin]:
    with s3() as server:
        try:
            checkpoint_jar.build()
        except checkpoint_jar.NoCompilerError as error:
            pytest.skip(f"no jar of the checkpoint file manager: {error}")
        yield lambda folder, dsn: StoreStream(folder, dsn, server)


@pytest.fixture(scope="module")
def on_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begin]:
    with gateway(tmp_path_factory.mktemp("gateway")) as server:
        yield lambda folder, dsn: StoreStream(folder, dsn, server)


@pytest.fixture(scope="module")
def on_gcs() -> Iterator[Begin]:
    with gcs() as server:
        yield lambda folder, dsn: StoreStream(folder, dsn, server)


@pytest.fixture(scope="module")
def on_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Begin]:
    with (
        hdfs(tmp_path_factory.mktemp("hdfs")) as cluster,
        FaultProxy.before_port(cluster.port) as proxy,
    ):
        yield lambda folder, dsn: HdfsStream(folder, dsn, proxy)


@pytest.fixture
def stream(request: pytest.FixtureRequest, place: str, tmp_path: Path, dsn: str) -> Stream:
    begin: Begin = request.getfixturevalue(place)
    return begin(tmp_path, dsn)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("place", PLACES)
def test_driver_held_in_a_remote_write_loses_and_repeats_nothing(
    stream: Stream, db: psycopg.Connection, write: str
) -> None:
    older_stands(stream, db, write)


@pytest.mark.parametrize("place", PLACES)
def test_driver_held_before_it_took_the_stream_takes_the_same_query(
    stream: Stream, db: psycopg.Connection
) -> None:
    older_stands_before_it_took_the_stream(stream, db)


@pytest.mark.parametrize("story", SAVEPOINTS)
@pytest.mark.parametrize("place", PLACES)
def test_driver_held_in_its_remote_savepoint_loses_and_repeats_nothing(
    stream: Stream, db: psycopg.Connection, story: str
) -> None:
    SAVEPOINTS[story](stream, db)


@pytest.mark.parametrize("place", [*PLACES, "on_gateway", "on_gcs"])
def test_files_of_the_newer_remote_driver_are_what_it_reads(
    stream: Stream, db: psycopg.Connection
) -> None:
    both_stand(stream, db)
