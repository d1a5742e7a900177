"""What `make test-versions` measured, and the tables of docs/spark/versions.md that are made of it.

A run of one pair of versions adds to the runs before it; `make test-versions` begins anew. Run as
`python -m tests.support.job.version_table` to write the tables into the page and print them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.benchmarks.common.tables import markdown
from tests.support.job.environments import FOLDER, ROOT, Environment

RESULTS = FOLDER / "results.json"
PAGE = ROOT / "docs" / "spark" / "versions.md"

COUNTED = """
SELECT count(*)::int AS batches, sum(row_count)::int AS rows,
    sum(entry_count)::int AS entries,
    sum(duplicate_count)::int AS duplicates,
    sum(suppressed_count)::int AS suppressed,
    sum(quarantined_count)::int AS quarantined
FROM holdfast.batch
"""


def record(environment: Environment, path: str, dsn: str, faults: str, seconds: float) -> None:
    """Keep what a run on a write path ended with: the sums of the ledger, and what was done to it.

    `faults` says in words what was killed, and joins those of the path's runs before; `seconds` is
    how long all starts of the query took.
    """
    with psycopg.connect(dsn, row_factory=dict_row) as db:
        counts = db.execute(COUNTED).fetchone()
    results = read()
    about = results.setdefault(str(environment), {"versions": environment.versions()._asdict()})
    before = about.get(path, {"faults": "", "seconds": 0})
    about[path] = {
        "faults": ", ".join(filter(None, (before["faults"], faults))),
        "seconds": before["seconds"] + round(seconds),
        "counts": counts,
    }
    _write(results)


def narrate(environment: Environment, path: str, lines: Sequence[str]) -> None:
    """Keep the transcript of a run on a write path, behind that of the tests before it."""
    results = read()
    results[str(environment)].setdefault("transcript", {}).setdefault(path, []).extend(lines)
    _write(results)


def read() -> dict[str, Any]:
    """Return what was measured since the last new beginning, by the names of environments."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _write(results: Mapping[str, Any]) -> None:
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """Return the parts of the page by their names."""
    classic = {name: each for name, each in sorted(results.items()) if "connect" not in name}
    connect = {name: each for name, each in sorted(results.items()) if "connect" in name}
    last = connect[max(connect)].get("transcript", {}) if connect else {}
    transcript = [line for path, lines in last.items() for line in (f"# {path} path", *lines)]
    return {
        "versions": markdown(_rows(classic)),
        "counts": markdown(_counts(results)),
        "connect": markdown(_rows(connect)),
        "transcript": "\n".join(("```", *transcript, "```")),
    }


def _rows(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = {"spark": "Spark", "python": "Python", "pyarrow": "PyArrow", "numpy": "NumPy"}
    names |= {"pandas": "pandas", "psycopg": "psycopg"}
    return [
        {names[name]: version for name, version in each["versions"].items()}
        | {f"{path} path": _cell(each.get(path)) for path in ("driver", "staged")}
        for each in results.values()
    ]


def _cell(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "not run"
    return str(run["faults"])


def _counts(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for name, each in results.items():
        kind = "Spark Connect, either path" if "connect" in name else "Spark, {} path"
        for path in ("driver", "staged"):
            if path in each:
                row = {"": kind.format(path)} | each[path]["counts"]
                rows[json.dumps(row)] = row
    return list(rows.values())


def publish() -> None:
    """Write the tables that were measured into the page, and print them."""
    text = PAGE.read_text()
    for name, block in blocks(read()).items():
        print(block, end="\n\n")  # noqa: T201 - for a person
        if f"<!-- {name} -->" not in text:
            raise LookupError(f"docs/spark/versions.md has no place for {name}")
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition("<!-- end -->")[2]
        text = f"{before}<!-- {name} -->\n{block}\n<!-- end -->{after}"
    PAGE.write_text(text)


if __name__ == "__main__":
    publish()
