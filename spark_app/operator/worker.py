"""What a Python worker of Spark does once, at the end of its first task."""

import gc
from functools import cache


@cache
def freeze_imports() -> None:
    """Take what is imported so far out of the garbage collector's view; once per process.

    A worker that is reused collects garbage after each task (`pyspark.daemon`), and would go
    through every object of Spark, Arrow and NumPy each time: some 70 ms for a batch of a few rows.
    """
    gc.collect()
    gc.freeze()
