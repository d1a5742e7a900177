"""Jobs over recorded batches, a file of decisions each: they write with the sink, without Spark."""

import json
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from tests.support.dispatch.sender import decision
from tests.support.job.driver import Driver


def record(folder: Path, batches: int) -> None:
    """Write files of decisions; each but the first repeats one of the file before."""
    folder.mkdir()
    for number in range(batches):
        numbers = [number - 1, number, number + 10] if number else [0, 10]
        (folder / f"{number}.json").write_text(json.dumps(numbers))


def job(dsn: str, batches: Path, checkpoint: Path, minor: int = 1) -> None:
    """Write the batches of which the checkpoint has no commit."""
    query_id = uuid5(NAMESPACE_URL, checkpoint.name)
    spark = Driver(dsn, query_id=query_id, suppress_repeats=False)
    for path in sorted(batches.iterdir()):
        commit = checkpoint / path.stem
        if not commit.exists():
            rows = [decision("m_1", each, minor=minor) for each in json.loads(path.read_text())]
            spark.batch(int(path.stem), *rows)
            commit.touch()
    spark.sink.close()


def forgetful_job(dsn: str, batches: Path, checkpoint: Path) -> None:
    """Decide by what is not in the rows: whether the process runs for the first time."""
    started = checkpoint / "started"
    minor = 2 if started.exists() else 1
    started.touch()
    # Its first batch is written by a run that another one repeats under another query.
    job(dsn, batches, checkpoint, minor)


def failing_job(*given: object) -> None:
    """Fail always."""
    raise RuntimeError(f"no such column in {given[1]}")
