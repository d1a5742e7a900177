"""`make test-postgres`: the integration tests on every Postgres that can be had here.

These are the versions of the wheel, those below /usr/lib/postgresql, and the `bin` directories that
are named as arguments. The last lines say the result of each version, and which ones were not had.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.deploy.local.binaries import FOLDERS
from tests.support.servers.databases import CHOSEN, major_of

SUPPORTED = range(15, 19)
SYSTEM = Path("/usr/lib/postgresql")
TESTS = ("tests/integration", "tests/migrations", "tests/contract/test_schema_parity.py")


def found(named: Sequence[str]) -> dict[int, str]:
    """Return each major version that can be had, with what HOLDFAST_TEST_POSTGRES says of it."""
    folders = [*sorted(map(str, SYSTEM.glob("*/bin"))), *named]
    return {
        **{major_of(Path(each)): each for each in folders},
        **{major: str(major) for major in FOLDERS},
    }


def main(named: Sequence[str]) -> int:
    """Run the tests on each version, one after the other; returns 1 if one failed."""
    servers = found(named)
    results = dict(_results(servers))
    for major in SUPPORTED:
        verdict = results.get(major, "not here: name its bin directory")
        sys.stdout.write(f"Postgres {major}: {verdict}\n")
    return int(any(each != "passed" for each in results.values()))


def _results(servers: dict[int, str]) -> Iterator[tuple[int, str]]:
    for major, chosen in sorted(servers.items()):
        command = [sys.executable, "-m", "pytest", "-q", *TESTS]
        done = subprocess.run(command, env={**os.environ, CHOSEN: chosen}, check=False)
        yield major, "passed" if done.returncode == 0 else f"FAILED ({done.returncode})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
