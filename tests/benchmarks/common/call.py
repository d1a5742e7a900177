"""One function of a benchmark in a process of its own: see `Tree.call`.

`python -m tests.benchmarks.common.call MODULE:FUNCTION`: stdin has the arguments as a list in JSON,
and the last line of stdout is what the function returned, as JSON.
"""

import importlib
import json
import sys

from holdfast.sink.contract.exits import ExitCode
from tests.benchmarks.common.trees import Missing

if __name__ == "__main__":
    module, _, function = sys.argv[1].partition(":")
    try:
        result = getattr(importlib.import_module(module), function)(*json.load(sys.stdin))
    except Missing as reason:
        print(str(reason).splitlines()[0], file=sys.stderr)
        sys.exit(ExitCode.NOTHING_MATCHED)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("holdfast"):
            raise
        print(f"that commit has no {error.name}", file=sys.stderr)
        sys.exit(ExitCode.NOTHING_MATCHED)
    print("\n" + json.dumps(result))
    sys.stdout.flush()
