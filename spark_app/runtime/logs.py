"""What the driver's libraries log: only our own, because the job itself tells what it does.

The bridge to the JVM logs each broken call with its stack, from more than one thread, when a JVM
dies; the job says that in one line. `HOLDFAST_SPARK_LOG` shows everything.
"""

import logging
import os

_OWN = ("sink", "spark_app")


def quiet() -> None:
    """Let warnings of our own packages through to stderr, and of others only when asked."""
    handler = logging.StreamHandler()
    if "HOLDFAST_SPARK_LOG" not in os.environ:
        handler.addFilter(_is_ours)
    # Without a handler at the root, the bridge would put its own there.
    logging.getLogger().addHandler(handler)


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _OWN
