"""An operator's night: a decision is refused, the receiver corrected, the decision sent again."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast.dispatcher.api.console.routes import live
from holdfast.dispatcher.operators.common.session import acting_as
from holdfast.sink import ReplayDiverged, Replayed, Written
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.console.admin_api import Api, serving
from tests.support.console.browser import window
from tests.support.dispatch.dispatching import Process, add_endpoint, dispatching
from tests.support.dispatch.sender import decision
from tests.support.dispatch.webhooks import WebhookReceiver, answer, listening
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.waiting import eventually

HELD = "m_482"
SAID = b'{"error":"m_482 has no payout account"}'
REASON = "its payout account was added"


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    """A receiver that refuses what is about m_482."""
    with listening() as receiver:
        receiver.script = lambda seen: (
            answer(400, SAID) if seen.subject == HELD and seen.sequence == 1 else answer(200)
        )
        yield receiver


@pytest.fixture
def dispatcher(dsn: str, receiver: WebhookReceiver, tmp_path: Path) -> Iterator[Process]:
    """A dispatcher that runs, and a dead letter that holds a later entry."""
    with psycopg.connect(dsn, autocommit=True) as db, Decisions(dsn) as decisions:
        add_endpoint(db, receiver.url)
        decisions.write(HELD, HELD, "m_1")
        with dispatching(dsn, tmp_path / "log") as dispatcher:
            dispatcher.until(lambda: db.execute("SELECT FROM holdfast.dead_letter").rowcount)
            yield dispatcher


@pytest.fixture
def night(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The console."""
    monkeypatch.setattr(live, "TICK_SECONDS", 0.1)
    with serving(dsn) as api:
        yield api


def test_dead_letter_is_found_understood_and_sent_again(
    browser: Browser, dispatcher: Process, night: Api, receiver: WebhookReceiver
) -> None:
    with window(browser, night) as opened:
        page = opened.go("/")
        page.get_by_label("Token").fill(night.secrets["operator"])
        page.get_by_role("button", name="Log in").click()
        _find(page)
        _plan(page)
        receiver.script = lambda _: answer(200)
        _apply(page, dispatcher)
        page.get_by_role("navigation", name="Screens").get_by_role("link", name="Audit").click()
        row = page.get_by_role("row").filter(has_text="replay.apply")
        expect(row).to_contain_text("token operator")
        expect(row).to_contain_text(REASON)
    eventually(lambda: receiver.sequences(HELD) == [1, 1, 2])
    first, again = (seen for seen in receiver.seen if seen.subject == HELD and seen.sequence == 1)
    assert first.header("webhook-id") == again.header("webhook-id")
    assert first.body == again.body


def test_diverged_replay_is_accepted_beside_its_difference(
    browser: Browser, dsn: str, night: Api
) -> None:
    """Ten new decisions by one person, then one more by two."""
    then, now = decision("m_0"), [decision(f"m_{number}") for number in range(11)]
    job = Driver(dsn, query_id=uuid4())
    job.batch(0, then)
    more = [*now, decision("m_more")]
    with pytest.raises(ReplayDiverged):
        job.batch(0, *now)
    with window(browser, night, "operator") as opened:
        page = opened.go("/batches/diff?stream=payouts&batch_id=0")
        expect(page.get_by_role("link", name="Accept…")).to_have_count(0)
        page = opened.go("/batches/accept?stream=payouts&batch_id=0")
        expect(page.get_by_text("This requires the role admin")).to_be_visible()
    with window(browser, night, "admin") as opened:
        for rows in (now, more):
            with pytest.raises(ReplayDiverged):
                job.batch(0, *rows)
            page = opened.go("/batches/diff?stream=payouts&batch_id=0")
            page.get_by_role("link", name="Accept…", exact=True).click()
            new = page.get_by_role("table", name="Affected rows").get_by_role("row")
            expect(new.filter(has_text="new")).to_have_count(len(rows) - (1 if rows is now else 11))
            page.get_by_label("Reason").fill(REASON)
            if rows is now:
                page.get_by_role("button", name="Accept it").click()
            else:
                page.get_by_role("button", name="Propose it").click()
                expect(page.get_by_role("status")).to_contain_text("nothing is accepted yet")
                short = page.get_by_role("table", name="Proposals").get_by_role("cell").first
                with acting_as("second"):
                    approve = ("proposal", "approve", short.inner_text(), "--reason", REASON)
                    holdfast(*approve, dsn=dsn, code=ExitCode.OK)
                page.reload()
                page.get_by_role("link", name="Accept as approved…").click()
                page.get_by_label("Reason").fill(REASON)
                page.get_by_role("button", name="Accept it").click()
            expect(page.get_by_role("status")).to_contain_text("start the job again")
            assert isinstance(job.batch(0, *rows), Written)
            assert isinstance(job.batch(0, *rows), Replayed)
    assert [row[0] for row in night.audited() if row[0].startswith("batch")] == [
        "batch.accept",
        "batch.accept",
    ]
    job.sink.close()


def _find(page: Page) -> None:
    page.get_by_role("link", name=re.compile("dead letters? (is|are) open")).click()
    page.get_by_role("row").filter(has_text=HELD).get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Dead letter 1")
    why = page.get_by_role("region", name="Why")
    expect(why).to_contain_text("needs a person")
    expect(why).to_contain_text("1 later entry")
    page.get_by_role("link", name="Show the body and the responses").click()
    expect(page.get_by_role("table")).to_contain_text(SAID.decode())


def _plan(page: Page) -> None:
    page.get_by_role("link", name="Send again…").click()
    page.get_by_label("Reason").fill(REASON)
    page.get_by_role("button", name="Make the plan").click()
    expect(page.get_by_role("status")).to_contain_text("Nothing is sent yet")
    expect(page.get_by_role("region", name="State")).to_contain_text("1 entry would be")


def _apply(page: Page, dispatcher: Process) -> None:
    page.get_by_role("link", name="Apply…").click()
    page.get_by_label("Reason").fill(REASON)
    # A dispatcher that runs can end the replay before the page is looked at.
    dispatcher.send(signal.SIGSTOP)
    page.get_by_role("button", name="Send 1 entry").click()
    state = page.get_by_role("region", name="State")
    expect(state).to_contain_text("applying")
    expect(page.get_by_role("link", name="Cancel…")).to_be_visible()
    dispatcher.go_on()
    expect(state).to_contain_text("applied")
    expect(state).to_contain_text("1 of 1 entry is done")
    expect(page.get_by_role("link", name="Cancel…")).to_have_count(0)
