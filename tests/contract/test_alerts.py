"""The alerts for Prometheus name only what there is, and fire when they should."""

import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import SECRET
from tests.support.job.decisions import Decisions
from tests.support.monitoring.prometheus import MISSING, program
from tests.support.monitoring.rules import (
    EVERYWHERE,
    ROOT,
    RULES,
    all_rules,
    labels_in,
    metric_labels,
    metrics_in,
)

ANSWERED = {ExitCode.OK, ExitCode.NOTHING_MATCHED, ExitCode.DEGRADED}

PLAYED = Path(__file__).parent / "vectors" / "alerts.yml"


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule["alert"]) for rule in all_rules()])
def test_alert_names_only_what_there_is(rule: dict[str, Any]) -> None:
    known, notes = metric_labels(), rule["annotations"]
    metrics = metrics_in(rule["expr"])
    assert metrics
    assert metrics <= known.keys()
    used = labels_in(f"{rule['expr']} {notes}")
    assert used <= EVERYWHERE.union(*(known[metric] for metric in metrics))
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert notes.keys() == {"summary", "description", "run", "runbook"}
    assert (ROOT / notes["runbook"].partition("#")[0]).is_file()


def test_command_of_each_alert_answers(dsn: str) -> None:
    """On a database with the stream and the endpoint that the labels name."""
    with Decisions(dsn, "payouts") as decisions:
        decisions.write("m_1")
    address = ("--url", "http://127.0.0.1:9", "--allow-cidr", "127.0.0.1/32")
    add = ("endpoint", "add", "payouts", *address, "--secret-ref", f"env:{SECRET}")
    assert holdfast(*add, dsn=dsn).returncode == ExitCode.OK
    secret = {SECRET: f"whsec_{b64encode(bytes(32)).decode()}"}
    for command in sorted({rule["annotations"]["run"] for rule in all_rules()}):
        _, *words = re.sub(r"{{ \$labels\.(endpoint|stream) }}", "payouts", command).split()
        asked = words[:2] == ["endpoint", "test"]
        answer = holdfast(*words, *["--yes"] * asked, dsn=dsn, environment=secret)
        # Nobody listens there, which is what `endpoint test` is to say.
        expected = {ExitCode.FAILED} if asked else ANSWERED
        assert answer.returncode in expected, f"{command}: {answer.stdout}{answer.stderr}"
        assert answer.stdout or answer.returncode == ExitCode.NOTHING_MATCHED, answer.stderr
        assert "Usage:" not in answer.stdout, f"{command} prints its help"


@pytest.fixture
def promtool(tmp_path: Path) -> Callable[..., str]:
    """Run promtool in a folder with the rules and what plays them; returns what it says."""
    program_path = program("promtool")
    if program_path is None:
        pytest.skip(MISSING.format("promtool"))
    for path in (RULES, PLAYED):
        shutil.copy(path, tmp_path)

    def run(*words: str) -> str:
        done = subprocess.run(
            [program_path, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_rules_are_well_formed(promtool: Callable[..., str]) -> None:
    text = promtool("check", "rules", RULES.name)
    assert f"{len(list(all_rules()))} rules found" in text


def test_alerts_fire_when_they_should(promtool: Callable[..., str]) -> None:
    """By `vectors/alerts.yml`: what is seen each minute, and which alerts fire when."""
    assert "SUCCESS" in promtool("test", "rules", PLAYED.name)
