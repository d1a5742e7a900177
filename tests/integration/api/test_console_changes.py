"""What an operator changes in the console: asked first, counted, with a reason that is kept."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.dispatcher.api.console.forms import confirm
from holdfast.dispatcher.api.routes import replays
from holdfast.sink.contract.key import Key
from tests.support.console.admin_api import Api, csrf_of, link_to, logged_in, serving, text_of
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, add_endpoint, drain
from tests.support.dispatch.sender import decision, secret_text
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions
from tests.support.job.driver import Driver
from tests.support.servers.databases import copy_of
from tests.support.world import World

pytestmark = pytest.mark.rest


HIDDEN = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)">')
VALUE = "a value that receivers know"
WHY = "the receiver was <b>repaired</b>"

LOSE = """
    DELETE FROM holdfast.entry
    WHERE sequence = 2 AND subject_id = (SELECT id FROM holdfast.subject WHERE name = %s)
"""


class Desk:
    """An operator at the console, an outbox, and a receiver that rejects what m_dead... has."""

    def __init__(self, api: Api, browser: httpx.Client, decisions: Decisions) -> None:
        self.api, self.browser, self._decisions = api, browser, decisions

    def deliver(self, *subjects: str) -> None:
        """Write a decision each, and deliver them."""
        self._decisions.write(*subjects)
        drain(self.api.dsn)

    def write(self, subject: str) -> str:
        """Write a decision that waits; returns its key."""
        row = self._decisions.row(subject)
        self._decisions.write_rows([row])
        return Key.of(row["key"]).text

    def lose(self, subject: str) -> None:
        """Write two decisions more, of which the first is not stored any more."""
        self._decisions.write(subject, subject)
        with psycopg.connect(self.api.dsn, autocommit=True) as db:
            db.execute(LOSE, [subject])
        drain(self.api.dsn)

    def dead(self, subject: str) -> int:
        """Let a decision of a subject die; returns the number of its dead letter."""
        self.deliver(subject)
        [row] = self.api.rows("SELECT max(id) AS id FROM holdfast.dead_letter")
        return int(row["id"])

    def ask(self, address: str) -> httpx.Response:
        """Open the page of a question."""
        page = self.browser.get(address)
        assert page.status_code == 200, text_of(page)
        return page

    def answer(self, page: httpx.Response, action: str, **fields: Any) -> httpx.Response:
        """Send the form of a page as the browser would."""
        assert f'action="{action}"' in page.text
        form = page.text.split(f'action="{action}"')[1].split("</form>")[0]
        kept: dict[str, list[str]] = {}
        for name, value in HIDDEN.findall(form):
            kept.setdefault(name, []).append(unescape(value))
        return self.browser.post(action, data={**kept, **fields})

    def done(self, page: httpx.Response, action: str, **fields: Any) -> httpx.Response:
        """Send the form of a page, and go where that leads."""
        went = self.answer(page, action, **fields)
        assert went.status_code == 303, text_of(went)
        return self.ask(went.headers["location"])

    def since(self, before: int) -> list[tuple[str, str, str]]:
        """What was audited since: action, who and why."""
        return [(each[0], each[2], each[3]) for each in self.api.audited()[before:]]


@pytest.fixture(scope="module")
def receiver() -> Iterator[WebhookReceiver]:
    with webhooks.listening() as receiver:
        receiver.script = lambda seen: answer(400 if seen.subject.startswith("m_dead") else 200)
        yield receiver


@pytest.fixture(scope="module")
def desk(server_dsn: str, template_database: str, receiver: WebhookReceiver) -> Iterator[Desk]:
    with (
        pytest.MonkeyPatch.context() as patch,
        copy_of(server_dsn, template_database) as dsn,
        serving(dsn) as api,
        Decisions(dsn) as decisions,
        logged_in(api, "operator") as browser,
    ):
        patch.setenv(SECRET, secret_text())
        with psycopg.connect(dsn, autocommit=True) as db:
            add_endpoint(db, receiver.url, headers=Jsonb({"x-team": VALUE}))
        yield Desk(api, browser, decisions)


def test_chosen_dead_letters_are_planned_applied_and_delivered(
    world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [desk.dead("m_dead_1"), desk.dead("m_dead_2")]
    before = len(desk.api.audited())
    listed = desk.ask("/dead")
    assert all(f'name="id" value="{each}"' in listed.text for each in numbers)
    chosen = "&".join(f"id={each}" for each in numbers)
    question = desk.ask(f"/dead/selected?do=redeliver&{chosen}")
    assert "Send 2 dead letters again" in text_of(question)
    assert "2 were rejected by the receiver" in text_of(question)
    plan = desk.done(question, "/dead/plan", reason=WHY, rate="50")
    assert "Nothing is sent yet" in text_of(plan)
    assert "50 per second" in text_of(plan)
    again = desk.answer(question, "/dead/plan", reason=WHY, rate="50")
    assert again.headers["location"] == plan.url.path, "sent twice, planned once"

    apply = link_to(plan, "Apply…")
    assert apply is not None
    monkeypatch.setattr(world.receiver, "script", lambda _: answer())
    begun = desk.done(desk.ask(apply), apply, reason="go")
    assert "applying" in text_of(begun)
    assert "data-live" in begun.text
    drain(desk.api.dsn)
    ended = desk.ask(plan.url.path)
    assert "2 of 2 entries are done" in text_of(ended)
    assert link_to(ended, "Cancel…") is None
    assert desk.browser.get(apply).status_code == 409
    who = "token operator"
    assert desk.since(before) == [("replay.plan", who, WHY), ("replay.apply", who, "go")]
    trail = desk.ask("/audit?action=replay")
    assert "&lt;b&gt;repaired&lt;/b&gt;" in trail.text
    assert f'href="{plan.url.path}"' in trail.text


def test_dead_letter_holding_its_lane_needs_skip_in_the_console(desk: Desk) -> None:
    number = desk.dead("m_dead_3")
    desk.deliver("m_dead_3")
    question = desk.ask(f"/dead/selected?do=dismiss&id={number}")
    assert "1 lane continues without them, with 1 later entry" in text_of(question)
    refused = desk.answer(question, "/dead/dismiss", reason=WHY)
    assert (refused.status_code, "holds the lane" in text_of(refused)) == (422, True)
    done = desk.done(question, "/dead/dismiss", reason=WHY, skip="yes")
    assert "1 was dismissed. 1 lane continues." in text_of(done)
    assert "dismissed" in text_of(done)
    once = desk.answer(question, "/dead/dismiss", reason=WHY, skip="yes")
    assert once.status_code == 404, "it is resolved already"


def test_change_needs_a_reason_and_the_right_role(desk: Desk) -> None:
    number = desk.dead("m_dead_4")
    question = desk.ask(f"/dead/selected?do=dismiss&id={number}")
    before = desk.api.audited()
    for fields in ({"reason": " "}, {"reason": "x" * 2001}, {}):
        refused = desk.answer(question, "/dead/dismiss", skip="yes", **fields)
        assert (refused.status_code, "needs a reason" in text_of(refused)) == (422, True)
    form = {"id": str(number), "reason": WHY, "skip": "yes"}
    stolen = desk.browser.post("/dead/dismiss", data={**form, "csrf": "0" * 64})
    assert stolen.status_code == 403
    assert desk.api.audited() == before
    with logged_in(desk.api, "viewer") as viewer:
        seen = {**form, "csrf": csrf_of(viewer.get("/dead"))}
        for action in (
            "/dead/dismiss",
            "/dead/plan",
            "/quarantine/dismiss",
            "/quarantine/requeue",
            "/replays",
            "/replays/00000000/apply",
            "/replays/00000000/cancel",
            "/endpoints/payouts/pause",
            "/endpoints/payouts/resume",
        ):
            refused = viewer.post(action, data=seen)
            assert refused.status_code == 403, action
            assert "requires the role operator" in text_of(refused)
    assert desk.api.audited()[len(before) + 1 :] == [], "the login alone"


def test_plan_is_made_by_its_form_and_cancelled(desk: Desk) -> None:
    desk.deliver("m_plan", "m_plan")
    form = desk.ask("/replays/new?subject=m_plan&state=delivered")
    assert 'value="m_plan"' in form.text
    plan = desk.done(form, "/replays", subject="m_plan", state="delivered", reason=WHY, limit="1")
    text = text_of(plan)
    assert "Nothing was sent yet. 1 entry would be." in text
    assert "omitted: beyond the limit" in text
    cancel = link_to(plan, "Cancel…")
    assert cancel is not None
    ended = desk.done(desk.ask(cancel), cancel, reason="not needed")
    assert "cancelled" in text_of(ended)
    assert link_to(ended, "Apply…") is None


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 422, "an empty filter would replay everything"),
        ({"subject": "nobody"}, 404, "no entry matches"),
        ({"subject": "m_1", "batch": "1"}, 422, "the stream too"),
        ({"subject": "m_1", "batch": "1-2"}, 422, "a range such as 120..125"),
        ({"subject": "m_1", "since": "2h"}, 422, "a time with a zone"),
        ({"subject": "m_1", "rate": "0"}, 422, "1 to 1,000,000"),
        ({"subject": "m_1", "limit": "-1"}, 422, "not a whole number"),
        ({"subject": "m_1", "state": "asleep"}, 422, "a state must be one of"),
        ({"keys": "hf_short"}, 422, "hf_short"),
        ({"subject": "m_1", "reason": ""}, 422, "needs a reason"),
    ],
)
def test_refused_form_keeps_its_input(
    desk: Desk, fields: dict[str, str], status: int, message: str
) -> None:
    before = desk.api.rows("SELECT count(*) FROM holdfast.replay")
    answer = desk.answer(desk.ask("/replays/new"), "/replays", **{"reason": WHY, **fields})
    assert answer.status_code == status
    assert message in text_of(answer)
    assert "&lt;b&gt;repaired" in answer.text or fields.get("reason") == ""
    for name in ("subject", "batch", "rate"):
        assert f'name="{name}" value="{fields.get(name, "")}"' in answer.text
    assert desk.api.rows("SELECT count(*) FROM holdfast.replay") == before


def test_large_plan_needs_its_number_typed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.deliver("m_large", "m_large")
    plan = desk.done(desk.ask("/replays/new"), "/replays", subject="m_large", reason=WHY)
    address = f"{plan.url.path}/apply"
    monkeypatch.setattr(confirm, "TYPED_ABOVE", 1)
    question = desk.ask(address)
    assert "Type 2, the number of affected rows" in text_of(question)
    for typed in ("", "1"):
        refused = desk.answer(question, address, typed=typed, reason=WHY)
        assert (refused.status_code, "was not typed" in text_of(refused)) == (422, True)
    other = desk.browser.post(
        address, data={"csrf": csrf_of(question), "count": "9", "reason": WHY}
    )
    assert other.status_code == 422, "agreed to another number"
    monkeypatch.setattr(replays, "ITEMS_ALONE_MAX", 1)
    refused = desk.answer(question, address, typed="2", reason=WHY)
    assert (refused.status_code, "administrator" in text_of(refused)) == (403, True)
    monkeypatch.undo()
    assert "applying" in text_of(desk.done(question, address, reason=WHY, typed="2"))
    drain(desk.api.dsn)


def test_quarantined_rows_are_requeued_or_dismissed(desk: Desk) -> None:
    spark = Driver(desk.api.dsn)
    nobody = decision("m_q") | {"subject": ""}
    spark.batch(0, decision("m_q"), nobody, decision("m_q", 2) | {"subject": None})
    spark.sink.close()
    numbers = [row["id"] for row in desk.api.rows("SELECT id FROM holdfast.quarantine ORDER BY 1")]
    chosen = "&".join(f"id={each}" for each in numbers)
    question = desk.ask(f"/quarantine/selected?do=requeue&{chosen}")
    back = desk.done(question, "/quarantine/requeue", reason=WHY)
    assert "0 rows are put back. 2 rows are refused again and stay open" in text_of(back)
    question = desk.ask(f"/quarantine/selected?do=dismiss&id={numbers[0]}")
    done = desk.done(question, "/quarantine/dismiss", reason=WHY)
    assert "1 row is dismissed." in text_of(done)
    assert WHY in text_of(done)
    assert link_to(done, "Dismiss…") is None
    left = desk.ask("/quarantine")
    assert f'href="/quarantine/{numbers[0]}"' not in left.text
    assert f'href="/quarantine/{numbers[1]}"' in left.text


def test_endpoint_is_paused_resumed_and_disabled_by_administrators(desk: Desk) -> None:
    page = desk.ask("/endpoints/payouts")
    assert "x-team" in text_of(page)
    assert VALUE not in page.text
    pause = link_to(page, "Pause…")
    assert pause is not None
    assert link_to(page, "Disable…") is None
    paused = desk.done(desk.ask(pause), pause, reason=WHY)
    assert f"paused {WHY}" in text_of(paused)
    resume = link_to(paused, "Resume…")
    assert resume is not None
    question = desk.ask(resume)
    assert "Sending resumes" in text_of(question)
    assert "active" in text_of(desk.done(question, resume, reason=WHY))
    refused = desk.browser.post(
        "/endpoints/payouts/disable", data={"csrf": csrf_of(question), "reason": WHY}
    )
    assert (refused.status_code, "only administrators" in text_of(refused)) == (422, True)
    with logged_in(desk.api, "admin") as admin:
        form = {"csrf": csrf_of(admin.get("/endpoints")), "reason": WHY}
        assert admin.post("/endpoints/payouts/disable", data=form).status_code == 303
        stays = desk.browser.post(resume, data={"csrf": csrf_of(question), "reason": WHY})
        assert (stays.status_code, "administrator" in text_of(stays)) == (409, True)
        assert link_to(desk.ask("/endpoints/payouts"), "Resume…") is None
        assert admin.post(resume, data=form).status_code == 303
    assert desk.ask("/endpoints/payouts").text.count("active") >= 1


def test_operator_passes_only_what_is_lost(world: World, desk: Desk) -> None:
    shown = "/subjects/show?name=m_lost+%26"
    desk.deliver("m_lost &")
    assert link_to(desk.ask(shown), "Skip missing decisions…") is None
    desk.lose("m_lost &")
    page = desk.ask(shown)
    ask = link_to(page, "Skip missing decisions…")
    assert ask == "/subjects/pass?name=m_lost+%26&endpoint=payouts"
    with logged_in(desk.api, "viewer") as viewer:
        assert link_to(viewer.get(shown), "Skip missing decisions…") is None
        assert "requires the role operator" in text_of(viewer.get(ask))
        form = {"name": "m_lost &", "endpoint": "payouts", "csrf": csrf_of(viewer.get("/"))}
        assert viewer.post("/subjects/pass", data={**form, "reason": WHY}).status_code == 403
    before = len(desk.api.audited())
    question = desk.ask(ask)
    assert "Sequence 2, and any missing directly after it," in text_of(question)
    done = desk.done(question, "/subjects/pass", reason=WHY)
    assert "Sequence 2 skipped at payouts; the lane continues with 3." in text_of(done)
    assert desk.since(before) == [("lane.pass", "token operator", WHY)]
    drain(desk.api.dsn)
    assert world.receiver.sequences("m_lost &") == [1, 3]
    again = desk.answer(question, "/subjects/pass", reason=WHY)
    assert (again.status_code, "has nothing to deliver" in text_of(again)) == (404, True)
    assert desk.browser.get("/subjects/pass?name=m_lost+%26&endpoint=other").status_code == 404


def test_operator_cancels_an_entry_from_its_page(world: World, desk: Desk) -> None:
    page = f"/entries/{desk.write('m_taken_back')}"
    desk.write("m_taken_back")
    ask = link_to(desk.ask(page), "Cancel…")
    assert ask == f"{page}/cancel"
    with logged_in(desk.api, "viewer") as viewer:
        assert link_to(viewer.get(page), "Cancel…") is None
        form = {"csrf": csrf_of(viewer.get("/")), "reason": WHY}
        assert viewer.post(f"{page}/cancel", data=form).status_code == 403
    before, question = len(desk.api.audited()), desk.ask(ask)
    assert "is never sent, neither to payouts nor to a later one" in text_of(question)
    done = desk.done(question, f"{page}/cancel", reason=WHY)
    assert "cancelled it at all endpoints" in text_of(done)
    assert WHY in text_of(done)
    assert link_to(done, "Cancel…") is None
    again = desk.answer(question, f"{page}/cancel", reason=WHY)
    assert (again.status_code, "is cancelled at all endpoints" in text_of(again)) == (404, True)
    assert [action for action, _, _ in desk.since(before)] == ["entry.cancel"]
    drain(desk.api.dsn)
    assert world.receiver.sequences("m_taken_back") == [2]


def test_operator_releases_a_subject_by_hand_from_its_page(world: World, desk: Desk) -> None:
    desk.deliver("m_by &")
    shown = desk.ask("/subjects/show?name=m_by+%26")
    ask = link_to(shown, "Release by hand…")
    assert ask == "/decisions/release?name=m_by+%26&stream=test"
    with logged_in(desk.api, "viewer") as viewer:
        assert link_to(viewer.get("/subjects/show?name=m_by+%26"), "Release by hand…") is None
    question = desk.ask(ask)
    assert '"origin":"hand"' in text_of(question)
    before = len(desk.api.audited())
    done = desk.done(question, "/decisions/release", reason=WHY)
    assert "payout_hold.release is decided" in text_of(done)
    # Posted twice it is decided once; what another page showed is no longer the newest.
    assert desk.answer(question, "/decisions/release", reason=WHY).status_code == 303
    stale = desk.ask("/decisions/block?name=m_by+%26&stream=test")
    desk.done(
        desk.ask("/decisions/block?name=m_by+%26&stream=test"), "/decisions/block", reason=WHY
    )
    refused = desk.answer(stale, "/decisions/block", reason=WHY)
    assert (refused.status_code, "since this one was shown" in text_of(refused)) == (409, True)
    assert [each[0] for each in desk.since(before)] == ["decide.release", "decide.block"]
    drain(desk.api.dsn)
    assert world.receiver.sequences("m_by &") == [1, 2, 3]


def test_operator_holds_and_resumes_a_subject_from_its_page(world: World, desk: Desk) -> None:
    shown = "/subjects/show?name=m_held+%26"
    desk.deliver("m_held &")
    ask = link_to(desk.ask(shown), "Hold…")
    assert ask == "/subjects/hold?name=m_held+%26&endpoint=payouts"
    with logged_in(desk.api, "viewer") as viewer:
        assert link_to(viewer.get(shown), "Hold…") is None
        form = {"name": "m_held &", "endpoint": "payouts", "csrf": csrf_of(viewer.get("/"))}
        assert viewer.post("/subjects/hold", data={**form, "reason": WHY}).status_code == 403
    before = len(desk.api.audited())
    done = desk.done(desk.ask(ask), "/subjects/hold", reason=WHY)
    assert "On hold at payouts until it is resumed." in text_of(done)
    assert f"token operator: {WHY}" in text_of(done)
    desk.deliver("m_held &")
    assert world.receiver.sequences("m_held &") == [1]
    assert "1 on hold" in text_of(desk.ask("/subjects?held=on_hold"))
    resume = link_to(desk.ask(shown), "Resume…")
    assert resume == "/subjects/resume?name=m_held+%26&endpoint=payouts"
    question = desk.ask(resume)
    assert "Resumed at payouts." in text_of(desk.done(question, "/subjects/resume", reason=WHY))
    assert [action for action, _, _ in desk.since(before)] == ["lane.hold", "lane.resume"]
    drain(desk.api.dsn)
    assert world.receiver.sequences("m_held &") == [1, 2]
    again = desk.answer(question, "/subjects/resume", reason=WHY)
    assert (again.status_code, "is not on hold" in text_of(again)) == (404, True)


def test_subject_is_held_until_a_time_that_the_form_names(desk: Desk) -> None:
    desk.deliver("m_1")
    question = desk.ask("/subjects/hold?name=m_1&endpoint=payouts")
    for wrong in ("tomorrow", "2020-01-01T00:00Z"):
        refused = desk.answer(question, "/subjects/hold", reason=WHY, until=wrong)
        assert refused.status_code == 422
        assert "Nothing was changed" in text_of(refused)
    done = desk.done(question, "/subjects/hold", reason=WHY, until="2099-01-02T05:04+02:00")
    assert "On hold at payouts until 2099-01-02T03:04:00Z." in text_of(done)
    with psycopg.connect(desk.api.dsn) as db:
        [until] = db.execute("SELECT max(on_hold_until) FROM holdfast.lane").fetchall()[0]
    assert until == datetime(2099, 1, 2, 3, 4, tzinfo=UTC)


def test_empty_outbox_has_every_screen(dsn: str) -> None:
    texts = {
        "/batches": "No stream yet",
        "/quarantine": "The quarantine is empty",
        "/dead": "No dead letter",
        "/replays": "No replay yet",
        "/endpoints": "No endpoint",
        "/dispatchers": "No dispatcher runs",
        "/database": "No other session holds a snapshot",
        "/audit?action=replay": "No action matches",
    }
    with serving(dsn) as api, logged_in(api) as browser:
        for address, words in texts.items():
            page = browser.get(address)
            assert (page.status_code, words in text_of(page)) == (200, True), address
