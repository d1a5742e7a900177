#!/opt/holdfast/bin/python
"""Asks the executor in this container to take no further tasks, before Kubernetes ends it.

Kubernetes runs it as the `preStop` hook that Spark sets (`spark.kubernetes.decommission.script`).
The image has it as `/opt/decommission`. The executor is the container's first process. It ends when
its tasks are done, and this program with it.
"""

import os
import signal
import time

EXECUTOR = 1

WAIT_SECONDS = 60.0
"""After that Kubernetes sends SIGTERM, where the pod's grace period has not passed before."""


def main() -> None:
    """Send Spark's signal for it, and wait."""
    os.kill(EXECUTOR, signal.SIGPWR)
    time.sleep(WAIT_SECONDS)


if __name__ == "__main__":
    main()
