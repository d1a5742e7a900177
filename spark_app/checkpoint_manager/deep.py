"""`verify --deep`: Spark reads the state after a batch, and every stored value is decoded.

Beyond the files' checksums this covers what Spark makes of them, and each value's own CRC.
"""

from collections import Counter
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.checkpoint_manager.listing import Document
from holdfast.spark_app.exposure.errors import ExposureError
from holdfast.spark_app.inspection.reader import StateReader
from holdfast.spark_app.lifecycle.failure import diagnose
from holdfast.spark_app.operator import stored
from holdfast.spark_app.runtime import session
from holdfast.spark_app.runtime.engine import start_quietly
from holdfast.spark_app.runtime.java import require_java


def read_state(checkpoint: str, batch: int) -> Document:
    """Start Spark and decode the state after a batch; `problem` is None where all of it is intact.

    Raises CommandError where Spark does not start.
    """
    if not session.launched_by_spark_submit():
        require_java()
    spark = start_quietly("holdfast verify")
    try:
        return _decoded(StateReader(spark, checkpoint), batch)
    finally:
        with suppress(Py4JError, OSError):
            spark.stop()


def _decoded(reader: StateReader, batch: int) -> Document:
    values: Counter[str] = Counter()
    rows: Counter[str] = Counter()
    problem = None
    try:
        operator = reader.operator()
        if operator is None:
            problem = "Spark finds no state"
        else:
            for kind, content in reader.contents(operator, batch):
                values[kind] += 1
                rows[kind] += 0 if content is None else stored.decode_value(kind, content).num_rows
    except (CommandError, ExposureError) as error:
        problem = str(error)
    except (PySparkException, Py4JError, ConnectionError) as error:
        problem = diagnose(error).said
    return {
        "batch_id": batch,
        "values": dict(sorted(values.items())),
        "merchants": rows[stored.GROUP],
        "windows": rows[stored.WINDOWS],
        "event_ids": rows[stored.IDS],
        "problem": problem,
    }
