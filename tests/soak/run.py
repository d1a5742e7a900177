"""Run the demo, the job and dispatchers under random faults for SOAK_MINUTES, seed after seed.

Stops at the first failure. Each seed is printed, so that a failure can be run again:
`holdfast demo --seed N`, `python -m tests.soak.job N`, `python -m tests.soak.dispatch N`.
"""

import os
import secrets
import subprocess
import sys
import time

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))

DEMO = ("-m", "holdfast.dispatcher.cli.main", "demo", "--seed")
JOB = ("-m", "tests.soak.job")
DISPATCH = ("-m", "tests.soak.dispatch")


def main() -> int:
    """Return the exit code of the first run that failed, or 0."""
    end = time.monotonic() + MINUTES * 60
    runs = 0
    while time.monotonic() < end:
        seed = secrets.randbelow(2**31)
        for name, words in (("demo", DEMO), ("job", JOB), ("dispatch", DISPATCH)):
            print(f"soak: run {runs + 1}, {name}, seed {seed}", flush=True)
            code = subprocess.run([sys.executable, *words, str(seed)], check=False).returncode
            if code != 0:
                print(f"soak: {name}, seed {seed}, ended with {code}", flush=True)
                return code
            runs += 1
    print(f"soak: {runs} runs, no loss, no repeat, no inversion", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
