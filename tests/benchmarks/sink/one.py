"""One run of one case in a process of its own: `python -m tests.benchmarks.sink.one CASE FOLDER`.

HOLDFAST_DSN names a fresh database. The last line of stdout is the laps as JSON; then the tables
have been checked. Ends with `ExitCode.NOTHING_MATCHED` when the case cannot be measured here.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from holdfast.sink.contract.exits import ExitCode
from tests.benchmarks.common.runs import Missing
from tests.benchmarks.sink.cases import CASES


def main() -> None:
    """Run, check, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    case, dsn = CASES[given.case], os.environ["HOLDFAST_DSN"]
    try:
        laps = case.run(dsn, given.folder)
    except Missing as reason:
        print(str(reason).splitlines()[0], file=sys.stderr)
        sys.exit(ExitCode.NOTHING_MATCHED)
    case.check(dsn, given.folder)
    print(json.dumps(laps))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
