"""The conformance kit and its command against real receivers: sound, broken, and in Node."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.workbench.conform.client import Client
from holdfast.dispatcher.workbench.conform.plan import plan_of, probe_of
from holdfast.dispatcher.workbench.conform.rules import Grade
from holdfast.dispatcher.workbench.conform.run import Report, Unreachable, conform_to
from holdfast.dispatcher.workbench.conform.shot import Shot
from holdfast.receiver import Secret
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.payouts import empty_database, payouts
from tests.support.dispatch.sender import OTHER_KEY_BYTES, secret_text
from tests.support.dispatch.transports import hasty
from tests.support.dispatch.webhooks import response
from tests.support.receivers import sound
from tests.support.receivers.sound import AcceptsOldTimestamps, BareReceiver, SoundReceiver, serving
from tests.support.servers.certificates import Authority

SCRIPT = Path(__file__).with_name("independent.mjs")
BODY_MILLISECONDS = 1000
READY = "listening on "
STOP_SECONDS_MAX = 10


def program() -> str:
    """Return the installed Node; skips the test if there is none."""
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed")
    return path


@contextmanager
def node_receiver(*secrets: str) -> Iterator[str]:
    """Run the receiver on a free port until the block ends; yields its URL."""
    process = subprocess.Popen(
        [program(), str(SCRIPT), str(BODY_MILLISECONDS)],
        env=os.environ | {"RECEIVER_SECRETS": " ".join(secrets)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(READY), f"exit code {process.poll()}: {line!r}"
        yield f"http://127.0.0.1:{line.removeprefix(READY).strip()}"
    finally:
        process.kill()
        process.wait(STOP_SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()


SECRET = Secret.parse(secret_text())
OTHER_SECRET = Secret.parse(secret_text(OTHER_KEY_BYTES))
KEEP_SECONDS = 0.3

UNSEEN = {
    "good.outcome",
    "duplicate.once",
    "duplicate.same-answer",
    "commit.before-answer",
    "concurrent.once",
    "conflict.first-kept",
    "order.stale",
    "order.stale-again",
    "keys.kept",
}
"""What a bare 200 does not tell."""

MALFORMED = {
    *(f"signature.{what}" for what in ("not-base64", "one-character", "not-padded", "url-safe")),
    *(f"signature.{what}" for what in ("empty-mac", "three-parts", "commas-between")),
    "header.beyond-ascii",
    "rotation.spoiled-beside",
}
UNSIGNED_BODIES = {"raw.spaced", "raw.rewritten", "raw.newline", "raw.byte-order-mark"}


REQUESTS = [
    f"{group}.*" for group in ("header", "id", "encoding", "time", "signature", "raw", "body")
]
"""The half of the rules that verification answers; the inbox answers the other half."""


def grade(url: str, probe: str | None = None, **options: Any) -> Report:
    """Fire at the URL; the slow sender takes seconds and is left out unless it is asked for."""
    options = {"seed": 7, "skip": ["slow.*"], **options}
    known = options.pop("secrets", [SECRET])
    return asyncio.run(conform_to(plan_of(url, known, **options), probe_of(probe, None)))


@pytest.mark.rest
def test_payouts_service_passes_and_acts_once_on_each_decision(server_dsn: str) -> None:
    with empty_database(server_dsn) as dsn, payouts(dsn) as service:
        # When the body that never ends is cut, the Node receiver shows: here it would take 10 s.
        report = grade(f"{service.url}/webhooks", skip=["slow.cut"])
        assert (report.rules(Grade.FAIL), report.rules(Grade.WARN), report.stopped) == (
            [],
            [],
            None,
        )
        with psycopg.connect(dsn) as connection:
            repeated = connection.execute(
                "SELECT key FROM payouts.hold_history GROUP BY key HAVING count(*) > 1"
            ).fetchall()
            subjects = connection.execute(
                "SELECT count(*) FROM payouts.hold WHERE merchant_id NOT LIKE 'conform-7-%'"
            ).fetchone()
    assert repeated == []
    assert subjects == (0,)


@pytest.mark.rest
def test_receiver_written_from_the_document_passes_in_each_language() -> None:
    with node_receiver(secret_text(), secret_text(OTHER_KEY_BYTES)) as url:
        report = grade(f"{url}/hooks", secrets=[SECRET, OTHER_SECRET], skip=[])
    assert report.rules(Grade.FAIL) == []
    assert report.rules(Grade.WARN) == []
    assert {"rotation.second-secret", "inquiry.known", "slow.cut"} <= set(report.rules(Grade.PASS))
    (known,) = (v for v in report.verdicts if v.rule.id == "inquiry.known")
    assert known.detail == "answered 200 applied"


@pytest.mark.rest
def test_sound_receiver_in_memory_passes_everything() -> None:
    with serving(SoundReceiver(SECRET)) as url:
        report = grade(f"{url}/hooks")
    assert (report.rules(Grade.FAIL), report.rules(Grade.WARN), report.stopped) == ([], [], None)


VERIFICATION = {"only": [*REQUESTS, "rotation.*", "trace.*"]}
INBOX = {"skip": [*REQUESTS, "slow.*"]}


@pytest.mark.rest
@pytest.mark.parametrize(
    ("make", "choice", "rules"),
    [
        (sound.ReserialisedBody, VERIFICATION, UNSIGNED_BODIES),
        (sound.FailsOnBadBase64, VERIFICATION, MALFORMED),
        (sound.AcceptsOldTimestamps, VERIFICATION, {"time.stale", "time.day-old"}),
        (sound.TrustsData, VERIFICATION, {"body.data-empty", "body.data-arrays"}),
        (sound.AnswersBeforeCommit, INBOX, {"commit.before-answer"}),
        (sound.GoesBackwards, INBOX, {"order.stale"}),
        (sound.WaitsForGaps, INBOX, {"order.gap", "order.stale"}),
        (sound.ConflictIsDone, INBOX, {"conflict.refused"}),
        (sound.LooksThenInserts, INBOX, {"concurrent.once"}),
    ],
)
def test_broken_receiver_fails_exactly_its_rule(
    make: Callable[[Secret], SoundReceiver], choice: dict[str, list[str]], rules: set[str]
) -> None:
    with serving(make(SECRET)) as url:
        report = grade(f"{url}/hooks", **choice)
    assert set(report.rules(Grade.FAIL)) == rules
    assert not report.passes(strict=False)


@pytest.mark.rest
def test_receiver_that_forgets_keys_needs_a_patient_test() -> None:
    forgetful = sound.KeepsKeysBriefly(SECRET, keep_seconds=KEEP_SECONDS)
    with serving(forgetful) as url:
        report = grade(f"{url}/hooks", only=["keys.*"], patient_seconds=KEEP_SECONDS * 1.5)
    assert report.rules(Grade.FAIL) == ["keys.kept"]
    with serving(sound.KeepsKeysBriefly(SECRET)) as url:
        hasty = grade(f"{url}/hooks", only=["keys.*"])
    assert (hasty.rules(Grade.FAIL), hasty.rules(Grade.WARN)) == ([], ["keys.kept"])


@pytest.mark.rest
def test_bare_answers_are_warnings_without_a_probe_and_graded_with_one() -> None:
    with serving(BareReceiver(SECRET)) as url:
        unseen = grade(f"{url}/hooks", only=[*UNSEEN])
        assert (set(unseen.rules(Grade.WARN)), unseen.rules(Grade.FAIL)) == (UNSEEN, [])
        assert unseen.passes(strict=False)
        assert not unseen.passes(strict=True)
        seen = grade(f"{url}/hooks", f"{url}/applied/{{key}}", seed=8, only=[*UNSEEN])
    left = {"good.outcome", "duplicate.same-answer", "order.stale-again", "keys.kept"}
    assert (set(seen.rules(Grade.WARN)), seen.rules(Grade.FAIL)) == (left, [])


@pytest.mark.rest
def test_probe_finds_what_bare_answers_hide() -> None:
    class Bare(BareReceiver, sound.LooksThenInserts):
        """Applies twice under concurrency, and does not say so."""

    class Queue(sound.AnswersBeforeCommit):
        """Answers a bare 200, also while the job is queued."""

        def compose(self, receipt: Any, delivery: Any) -> Any:
            return BareReceiver.compose(self, receipt, delivery)  # type: ignore[arg-type]

    for make, rule in ((Bare, "concurrent.once"), (Queue, "commit.before-answer")):
        with serving(make(SECRET)) as url:
            only = ["concurrent.once", "commit.before-answer"]
            report = grade(f"{url}/hooks", f"{url}/applied/{{key}}", only=only)
        assert report.rules(Grade.FAIL) == [rule]


@pytest.mark.rest
def test_other_contract_is_fired_as_it_is_given() -> None:
    receiver = SoundReceiver(SECRET)
    data = b'{"account":"{subject}","amount_minor":1200,"tags":["{subject}/x"]}'
    with serving(receiver) as url:
        report = grade(f"{url}/hooks", type_="refund.granted", data=data)
    assert (report.rules(Grade.FAIL), report.rules(Grade.WARN)) == ([], [])
    assert all(subject.startswith("conform-7-") for subject in receiver.fences)


@pytest.mark.rest
def test_refused_good_delivery_ends_the_run_and_says_so() -> None:
    with serving(SoundReceiver(OTHER_SECRET)) as url:
        report = grade(f"{url}/hooks")
    assert report.rules(Grade.FAIL) == ["good.applied", "raw.spaced"]
    assert "good delivery was refused" in (report.stopped or "")
    assert not report.passes(strict=False)


@pytest.mark.rest
def test_certificate_is_checked_and_a_private_authority_can_be_named(tmp_path: Path) -> None:
    authority = Authority()
    only = ["good.applied", "slow.others"]
    with serving(SoundReceiver(SECRET), authority.server()) as url:
        with pytest.raises(Unreachable, match="certificate verify failed"):
            grade(f"{url}/hooks")
        report = grade(f"{url}/hooks", only=only, skip=[], ca_file=authority.file(tmp_path))
    assert report.rules(Grade.PASS) == only


@pytest.mark.rest
def test_reused_seed_differs_from_a_fault() -> None:
    with serving(SoundReceiver(SECRET)) as url:
        grade(f"{url}/hooks", only=["good.*"])
        report = grade(f"{url}/hooks", only=["good.*"])
    (verdict,) = report.verdicts
    assert "--seed was already used" in verdict.detail


ENVIRONMENT = {"CONFORM_SECRET": secret_text()}
REF = ("--secret-ref", "env:CONFORM_SECRET")


@pytest.mark.rest
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


@pytest.mark.rest
def test_failure_is_shown_with_its_rule_source_and_fix() -> None:
    with serving(AcceptsOldTimestamps(SECRET)) as url:
        arguments = ("conform", f"{url}/hooks", *REF, "--only", "time.*")
        ended = holdfast(*arguments, environment=ENVIRONMENT)
    assert ended.returncode == ExitCode.FAILED
    assert "fail time.stale: accepted: answered 200 applied" in ended.stdout
    assert "(PROTOCOL.md section 2, check 10; Standard Webhooks 1.0.0" in ended.stdout
    assert "fix:  Compare the timestamp with your clock" in ended.stdout
    assert "2 failed" in ended.stdout


@pytest.mark.rest
def test_unreadable_url_is_reported_in_one_line() -> None:
    ended = holdfast("conform", "http://[::1", *REF, environment=ENVIRONMENT, code=ExitCode.USAGE)
    assert "its URL" in ended.stderr
    assert "Nothing was sent" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.rest
def test_nothing_is_sent_to_another_machine_unless_asked() -> None:
    ended = holdfast("conform", "https://payouts.example/hooks", *REF, environment=ENVIRONMENT)
    assert ended.returncode == ExitCode.USAGE
    assert "is not this machine" in ended.stderr
    assert "--yes" in ended.stderr


SHOT = Shot("hf_0", ((b"content-type", b"application/json"),), b'{"type":"payout_hold"}')


def test_body_that_is_left_unread_never_spoils_the_next_answer() -> None:
    with hasty(response(401)) as receiver:
        receiver.goes_on.set()

        async def work() -> list[int | None]:
            async with Client(receiver.url, 10) as client:
                return [(await client.send(SHOT)).status for _ in range(2)]

        assert asyncio.run(work()) == [401, 200]
