"""Run the demo with one random seed after another for SOAK_MINUTES; stop at the first failure.

The seed of each run is printed, so that a failure can be run again: `holdfast demo --seed N`.
"""

import os
import secrets
import subprocess
import sys
import time

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))


def main() -> int:
    """Return the exit code of the first demo that failed, or 0."""
    end = time.monotonic() + MINUTES * 60
    runs = 0
    while time.monotonic() < end:
        seed = secrets.randbelow(2**31)
        print(f"soak: run {runs + 1}, seed {seed}", flush=True)
        command = [sys.executable, "-m", "dispatcher.cli.main", "demo", "--seed", str(seed)]
        code = subprocess.run(command, check=False).returncode
        if code != 0:
            print(f"soak: seed {seed} ended with {code}", flush=True)
            return code
        runs += 1
    print(f"soak: {runs} runs, no loss, no repeat, no inversion", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
