"""`make test`: all tests, in two processes side by side, because most of them wait.

Most of what starts Spark is in the one, what starts servers and dispatchers in the other. On a
server that is given they would meet, so there they run one after another.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HALVES = (
    ("tests/spark", "tests/unit", "tests/contract", "tests/migrations", "tests/e2e"),
    ("tests/faults", "tests/integration"),
)


def main() -> int:
    """Return 0 if all tests passed; the output of the second half follows that of the first."""
    folders = {f"tests/{path.parts[1]}" for path in Path("tests").rglob("test_*.py")}
    if missing := folders.difference(*HALVES):
        sys.exit(f"in no half of tests/run.py: {', '.join(sorted(missing))}")
    pytest = [sys.executable, "-m", "pytest"]
    if os.environ.get("HOLDFAST_TEST_DSN"):
        return subprocess.run(pytest, check=False).returncode
    with tempfile.TemporaryFile() as output:
        with (
            subprocess.Popen([*pytest, *HALVES[1]], stdout=output, stderr=output) as second,
            subprocess.Popen([*pytest, *HALVES[0]]) as first,
        ):
            codes = (first.wait(), second.wait())
        output.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return max(codes, key=abs)


if __name__ == "__main__":
    sys.exit(main())
