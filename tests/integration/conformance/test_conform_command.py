"""`holdfast conform` as a process: what it prints, how it ends, whom it does not fire at."""

import json
import sys
from pathlib import Path

import pytest

from holdfast.receiver import Secret
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.sender import secret_text
from tests.support.receivers.sound import AcceptsOldTimestamps, BareReceiver, serving

pytestmark = pytest.mark.rest


SECRET = Secret.parse(secret_text())
ENVIRONMENT = {"CONFORM_SECRET": secret_text()}
REF = ("--secret-ref", "env:CONFORM_SECRET")


def test_json_report_names_rules_grades_and_the_seed(tmp_path: Path) -> None:
    with serving(BareReceiver(SECRET)) as url:
        # A probe as a command: the standard library asks what the receiver counts.
        program = tmp_path / "probe.py"
        program.write_text(
            "import sys, urllib.request\n"
            "print(urllib.request.urlopen(sys.argv[1]).read().decode())\n"
        )
        probe = f"{sys.executable} -S {program} {url}/applied/{{key}}"
        arguments = ("conform", f"{url}/hooks", *REF, "--only", "duplicate.once", "--seed", "3")
        ended = holdfast(*arguments, "--probe-command", probe, "--json", environment=ENVIRONMENT)
    assert ended.returncode == ExitCode.OK, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["seed"], report["failed"], report["stopped"]) == (3, 0, None)
    (rule,) = report["rules"]
    assert (rule["rule"], rule["grade"], rule["severity"]) == ("duplicate.once", "pass", "must")
    assert rule["detail"] == "the probe counts 1"
    assert secret_text() not in ended.stdout + ended.stderr


def test_failure_is_shown_with_its_rule_source_and_fix() -> None:
    with serving(AcceptsOldTimestamps(SECRET)) as url:
        arguments = ("conform", f"{url}/hooks", *REF, "--only", "time.*")
        ended = holdfast(*arguments, environment=ENVIRONMENT)
    assert ended.returncode == ExitCode.FAILED
    assert "fail time.stale: accepted: answered 200 applied" in ended.stdout
    assert "(PROTOCOL.md section 2, check 10; Standard Webhooks 1.0.0" in ended.stdout
    assert "fix:  Compare the timestamp with your clock" in ended.stdout
    assert "2 failed" in ended.stdout


def test_url_that_cannot_be_read_is_said_in_one_line() -> None:
    ended = holdfast("conform", "http://[::1", *REF, environment=ENVIRONMENT, code=ExitCode.USAGE)
    assert "its URL" in ended.stderr
    assert "Nothing was sent" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_nothing_is_sent_to_another_machine_unless_it_is_meant() -> None:
    ended = holdfast("conform", "https://payouts.example/hooks", *REF, environment=ENVIRONMENT)
    assert ended.returncode == ExitCode.USAGE
    assert "is not this machine" in ended.stderr
    assert "--yes" in ended.stderr
