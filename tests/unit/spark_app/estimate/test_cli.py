"""`holdfast job estimate`: what it prints, and what it refuses."""

import json
import subprocess
import sys
from typing import Any

import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.spark_app.estimate.model import UNKNOWN, Load, estimate
from holdfast.spark_app.estimate.units import COMMAND
from tests.support.command import holdfast

LOAD = ("--events-per-second", "4000", "--merchants", "200000")


def _estimated(*words: str) -> subprocess.CompletedProcess[str]:
    return holdfast("job", "estimate", *words, process=False)


def _json(*words: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    done = _estimated(*words, "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_json_has_every_figure_of_the_model() -> None:
    found = _json(*LOAD, "--interval", "30s", "--detection", "5s")
    model = estimate(Load(4_000, 200_000, interval_s=30, detection_s=5))
    assert found["batch_s"] == model.batch_s
    assert found["checkpoint_bytes"] == model.checkpoint_bytes
    assert found["recovery"]["detection_s"] == 5
    assert found["recovery"]["total_s"] == model.recovery.total_s
    assert found["ids_open"] == 4_000 * 1_050
    assert found["measured"]["command"] == COMMAND
    assert tuple(found["not_known"]) == model.not_known


def test_options_reach_the_model() -> None:
    found = _json(*LOAD, "--watermark-delay", "1m", "--late-cutoff", "5m")
    assert found["ids_open"] == 4_000 * (900 + 300 + 60)
    assert _json(*LOAD, "--ids-open", "1000000")["ids_open"] == 1_000_000


def test_text_names_the_terms_and_what_is_not_known() -> None:
    done = _estimated(*LOAD)
    assert done.returncode == ExitCode.OK
    lines = {line[:15].strip(): line for line in done.stdout.splitlines()}
    assert {"interval", "state", "checkpoint", "memory", "recovery time"} <= lines.keys()
    for term in ("detection", "restart", "restore", "reprocess"):
        assert term in lines["recovery time"]
    assert all(words in done.stdout for words in UNKNOWN)


def test_only_what_the_options_leave_open_is_not_known() -> None:
    unsaid = ("the detection", "the open ids", "key groups")
    for words, expected in (
        ((), {"the detection", "the open ids"}),
        (("--detection", "5s"), {"the open ids"}),
        (("--detection", "5s", "--ids-open", "1000000"), set()),
        (("--detection", "5s", "--ids-open", "1000000", "--key-groups", "64"), {"key groups"}),
    ):
        said = _json(*LOAD, *words)["not_known"]
        assert {name for name in unsaid if any(name in each for each in said)} == expected
        assert set(UNKNOWN) <= set(said)


def test_a_load_beyond_what_was_measured_is_a_warning_and_no_failure() -> None:
    inside = ("--events-per-second", "3000", "--merchants", "5000")
    assert _json(*inside)["extrapolated"] == []
    assert "warning" not in _estimated(*inside).stdout
    beyond = ("--ids-open", "9000000", "--merchants", "300000", "--interval", "10m")
    found = _json(*inside, *beyond)["extrapolated"]
    assert [each.partition(" are ")[0] for each in found[:3]] == [
        "9,000,000 ids in the state",
        "300,000 merchants",
        "1,800,000 events in a batch",
    ]
    assert "an interval of 600 s" in found[3]
    done = _estimated(*inside, *beyond)
    assert (done.returncode, done.stdout.count("warning  ")) == (ExitCode.OK, 4)


def test_a_load_that_does_not_fit_is_exit_code_4() -> None:
    found = _json("--events-per-second", "1000000", "--merchants", "1", code=ExitCode.DEGRADED)
    assert found["recommended_interval_s"] is None
    assert found["caught_up_s"] is None
    done = _estimated(*LOAD, "--interval", "100ms")
    assert done.returncode == ExitCode.DEGRADED
    assert "falls behind" in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--events-per-second", "0"),
        ("--events-per-second", "nan"),
        ("--merchants", "0"),
        ("--ids-open", "-1"),
        ("--ids-open", "1"),
        ("--interval", "soon"),
        ("--interval", "2h"),
        ("--detection", "1d"),
        ("--key-groups", "0"),
    ],
)
def test_nonsense_is_refused(words: tuple[str, str]) -> None:
    done = _estimated(*LOAD, "--interval", "10s", *words)
    assert done.returncode == ExitCode.USAGE
    assert not done.stdout


def test_nothing_of_spark_is_imported() -> None:
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-X",
                "importtime",
                "-m",
                "holdfast.dispatcher.cli.main",
                "job",
                "estimate",
            ),
            *LOAD,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "holdfast.spark_app.estimate.model" in imported
    assert imported.isdisjoint({"pyspark", "pyarrow", "numpy"})
