"""Every measured request: pages of the console, reads of the API, and commands that list."""

import shlex
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import psycopg

from holdfast.dispatcher.api.console.frame.templating import SCREENS
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.key import Key


@dataclass(frozen=True, slots=True)
class Query:
    """One page, one read or one list."""

    kind: str
    """`console`, `api` or `cli`."""

    shows: str
    """What it is, for the table; a filter and a page are named behind the place."""

    ask: tuple[str, ...]
    """An address, or the words of a command."""

    ends: tuple[int, ...] = (200,)
    """Statuses, or exit codes, that are right."""


ONE = """
    SELECT e.key, s.name AS subject, b.batch_id, b.batch_no, b.stream, b.written_at
    FROM holdfast.batch b
    JOIN LATERAL (SELECT * FROM holdfast.entry e WHERE e.batch_no = b.batch_no
        AND e.created_at = b.written_at ORDER BY subject_id DESC LIMIT 1) e ON true
    JOIN holdfast.subject s ON s.id = e.subject_id
    WHERE b.batch_no = (SELECT 1 + max(batch_no) * %(share)s / 100 FROM holdfast.batch)
"""
NUMBERS = """
    SELECT (SELECT max(id) FROM holdfast.dead_letter WHERE resolution IS NULL) AS dead,
        (SELECT max(id) FROM holdfast.dead_letter WHERE resolution IS NOT NULL) AS dead_resolved,
        (SELECT (min(id) + max(id)) / 2 FROM holdfast.dead_letter) AS dead_middle,
        (SELECT max(id) FROM holdfast.quarantine WHERE resolution IS NULL) AS quarantined,
        (SELECT (min(id) + max(id)) / 2 FROM holdfast.quarantine) AS quarantine_middle,
        (SELECT key FROM holdfast.suppressed ORDER BY batch_no DESC LIMIT 1) AS suppressed,
        (SELECT (min(id) + max(id)) / 2 FROM holdfast.operator_action) AS action_middle,
        (SELECT id FROM holdfast.proposal ORDER BY created_at LIMIT 1) AS proposal,
        (SELECT b.batch_id FROM holdfast.divergence v JOIN holdfast.batch b USING (batch_no)
            ORDER BY v.id DESC LIMIT 1) AS diverged,
        (SELECT s.name FROM holdfast.dead_letter d JOIN holdfast.subject s ON s.id = d.subject_id
            WHERE d.resolution IS NULL LIMIT 1) AS stopped,
        (SELECT min(finished_at) FROM holdfast.attempt) AS first_attempt,
        (SELECT max(finished_at) FROM holdfast.attempt) AS last_attempt
"""
NAMES = (
    *("diverged", "dead", "dead_resolved", "dead_middle", "quarantined", "quarantine_middle"),
    *("action_middle", "proposal", "stopped"),
)
"""Of NUMBERS, those that are used as they are."""

REPLAYS = """
    SELECT DISTINCT ON (state) state::text, id, created_at FROM holdfast.replay
    ORDER BY state, item_count DESC, created_at DESC
"""


Known = SimpleNamespace
"""What addresses and arguments are made of; all of it is text."""


def known(dsn: str) -> Known:
    """Find one of everything; raises LookupError in a database without troubles."""
    with psycopg.connect(dsn, row_factory=psycopg.rows.dict_row) as connection:
        late = _row(connection, ONE, share=90)
        early = _row(connection, ONE, share=10)
        numbers = _row(connection, NUMBERS)
        replays = {row["state"]: row for row in connection.execute(REPLAYS)}
    if not {"planned", "applying", "applied"} <= replays.keys() or None in numbers.values():
        raise LookupError("the database lacks some of the troubles that the queries are about")
    middle = numbers["first_attempt"] + (numbers["last_attempt"] - numbers["first_attempt"]) / 2
    return Known(
        nobody="nobody_at_all",
        rare_type="payout_hold.release",
        entries_middle=f"{int(late['batch_no']) // 2}.{10**17}.1",
        key=Key(late["key"]).text,
        early_key=Key(early["key"]).text,
        subject=late["subject"],
        stream=late["stream"],
        batch=str(late["batch_id"]),
        batch_no=str(late["batch_no"]),
        **{name: str(numbers[name]) for name in NAMES},
        suppressed=Key(numbers["suppressed"]).text,
        suppressed_middle=f"{int(late['batch_no']) // 2}.0.0.0",
        **{state: str(replays[state]["id"]) for state in ("planned", "applying", "applied")},
        replay_middle=rfc3339(replays["applied"]["created_at"]),
        since=rfc3339(early["written_at"]),
        until=rfc3339(late["written_at"]),
        # A place in the middle of all attempts.
        attempts_middle=f"{_micros(middle)}.0.0.0.0",
    )


def _row(connection: psycopg.Connection[dict[str, Any]], query: str, **parameters: int) -> Any:
    row = connection.execute(query.encode(), parameters or None).fetchone()
    if row is None:
        raise LookupError("the database is not filled")
    return row


def _micros(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000)


TOLD = (ExitCode.OK, ExitCode.FAILED, ExitCode.NOTHING_MATCHED, ExitCode.DEGRADED)
"""All but a wrong word: what the database holds is of no concern here."""

LISTS = """
entry list: | --type {nobody} | --type {rare_type} | --stream {stream} --batch {batch}
entry list: --subject {subject} | --since {since} --until {until} --type {nobody}
entry list: --before {entries_middle}
entries: tail | tail --type {nobody} | show {key}
why: {key} | {stopped}
trace: {key}
subject list: | --held stopped | --held retrying | --held behind | --held any | --prefix {nobody}
subjects: list --held stopped --after m_5 | show {stopped}
stream: list | show {stream}
batch: list {stream} | list {stream} --before {diverged} | show {stream} {batch}
batch: diff {stream} {diverged}
quarantine: list | list --all | list --reason body_too_large | show {quarantined}
suppressed: list | list --cause overtaken | list --subject {subject} | show {suppressed}
attempt list: | {key} | --subject {subject} | --endpoint payouts | --endpoint partner-1
attempt list: --outcome delivered | --outcome rejected | --outcome refused
attempt list: --before {attempts_middle}
dead: list | list --all | list --endpoint ledger | list --reason exhausted | show {dead}
replay: list | show {planned} | show {planned} --items | status {applying}
endpoint: list | show payouts | show archive | show partner-1
triage:
status:
overview:
database:
dispatchers: list
token: list
config: show
audit list: | --actor {nobody} | --action endpoint | --before {action_middle}
"""
"""A command and, behind the colon, what each list of it is told more."""


def lists(known: Known) -> list[Query]:
    """Return the commands with their arguments."""
    names, queries = {name: shlex.quote(text) for name, text in vars(known).items()}, []
    for line in LISTS.format(**names).strip().split("\n"):
        command, _, more = line.partition(":")
        queries += [(*command.split(), *shlex.split(each)) for each in more.split("|")]
    return [Query("cli", " ".join(words), words, TOLD) for words in queries]


PAGES = """
Entries of a type that nothing has        | /entries?type={nobody}
Entries of a type that little has         | /entries?type={rare_type}
Entries of a stream                       | /entries?stream={stream}
Entries of a batch                        | /entries?stream={stream}&batch={batch}
Entries of a batch and no type            | /entries?stream={stream}&batch={batch}&type={nobody}
Entries of a subject                      | /entries?subject={subject}
Entries of a subject that is none         | /entries?subject={nobody}
Entries of a time                         | /entries?since={since}&until={until}
Entries of a time and no type             | /entries?since={since}&type={nobody}
Entries page in the middle                | /entries?before={entries_middle}
Entry, new                                | /entries/{key}
Entry, old                                | /entries/{early_key}
Entry as curl                             | /entries/{key}/curl
Subjects by name                          | /subjects?prefix=m_9
Subjects by a name that nothing has       | /subjects?prefix={nobody}
Subjects stopped                          | /subjects?held=stopped
Subjects retrying                         | /subjects?held=retrying
Subjects behind                           | /subjects?held=behind
Subjects on hold                          | /subjects?held=on_hold
Subjects any                              | /subjects?held=any
Subjects stopped, by name                 | /subjects?held=stopped&prefix=m_9
Subjects retrying, by no name             | /subjects?held=retrying&prefix={nobody}
Subjects stopped, page in the middle      | /subjects?held=stopped&after=m_5
Subjects page in the middle               | /subjects?after=m_5
Subjects silenced                         | /subjects?silenced=yes
Subject                                   | /subjects/show?name={subject}
Subject that is stopped                   | /subjects/show?name={stopped}
Subject, to hold                          | /subjects/hold?name={stopped}&endpoint=payouts
Subject, to resume                        | /subjects/resume?name={stopped}&endpoint=payouts
Subject, to pass                          | /subjects/pass?name={stopped}&endpoint=payouts
Subject, to release by hand               | /decisions/release?name={subject}&stream={stream}
Batches of a stream                       | /batches?stream={stream}
Batches page in the middle                | /batches?stream={stream}&before={diverged}
Batch                                     | /batches/show?stream={stream}&batch_id={batch}
Batch that diverged                       | /batches/show?stream={stream}&batch_id={diverged}
Difference                                | /batches/diff?stream={stream}&batch_id={diverged}
Quarantine resolved                       | /quarantine?which=resolved
Quarantine all                            | /quarantine?which=all
Quarantine of a stream                    | /quarantine?stream={stream}
Quarantine of a reason                    | /quarantine?reason=bad_time
Quarantine of a reason that nothing has   | /quarantine?reason=body_too_large
Quarantine resolved, of no reason         | /quarantine?reason=body_too_large&which=resolved
Quarantine page in the middle             | /quarantine?which=all&before={quarantine_middle}
Row                                       | /quarantine/{quarantined}
Suppressed of a stream                    | /suppressed?stream={stream}
Suppressed of a subject                   | /suppressed?subject={subject}
Suppressed overtaken                      | /suppressed?cause=overtaken
Suppressed of a time                      | /suppressed?since={since}&until={until}
Suppressed page in the middle             | /suppressed?before={suppressed_middle}
Suppressed decision                       | /suppressed/{suppressed}
Rows, chosen                              | /quarantine/selected?id={quarantined}&do=dismiss
Dead letters resolved                     | /dead?which=resolved
Dead letters all                          | /dead?which=all
Dead letters of an endpoint               | /dead?endpoint=payouts
Dead letters of an endpoint without any   | /dead?endpoint=ledger
Dead letters of a subject                 | /dead?subject={stopped}
Dead letters of a subject that is none    | /dead?subject={nobody}
Dead letters of a reason nothing has      | /dead?reason=exhausted&which=all
Dead letters page in the middle           | /dead?which=all&before={dead_middle}
Dead letter, open                         | /dead/{dead}
Dead letter, resolved                     | /dead/{dead_resolved}
Dead letters, to redeliver                | /dead/selected?id={dead}&do=redeliver
Dead letters, to dismiss                  | /dead/selected?id={dead}&do=dismiss
New replay                                | /replays/new
Replay, planned                           | /replays/{planned}
Replay, planned, later page               | /replays/{planned}?after=50000
Replay, under way                         | /replays/{applying}
Replay, under way, later page             | /replays/{applying}?after=50000
Replay, applied                           | /replays/{applied}
Replay, applied, later page               | /replays/{applied}?after=50000
Replay, to apply                          | /replays/{planned}/apply
Replay, to cancel                         | /replays/{applying}/cancel
Redelivery, why                           | /entries/{key}/redeliver
Redelivery, whether                       | /entries/{key}/redeliver/{redelivery}
Endpoint payouts                          | /endpoints/payouts
Endpoint risk                             | /endpoints/risk
Endpoint archive                          | /endpoints/archive
Endpoint partner-1                        | /endpoints/partner-1
Endpoint, to pause                        | /endpoints/archive/pause
Endpoint, to resume                       | /endpoints/archive/resume
Endpoint, to disable                      | /endpoints/archive/disable
Overview of 15 minutes                    | /?minutes=15
Overview of 180 minutes                   | /?minutes=180
Audit of an actor                         | /audit?actor=person-7
Audit of an actor that is none            | /audit?actor={nobody}
Audit of an action                        | /audit?action=endpoint
Audit of a target that is none            | /audit?target={nobody}
Audit of a time                           | /audit?since={since}&until={until}
Audit page in the middle                  | /audit?before={action_middle}
What live pages hear                      | /live
Login                                     | /login
"""
OTHERS = """
Entry, to cancel, that was begun          | 409 | /entries/{early_key}/cancel
Batch, to accept, that is not the newest | 409 | /batches/accept?stream={stream}&batch_id={diverged}
Entry that is none                        | 404 | /entries/hf_00000000000000000000000000000000
Search for a key                          | 303 | /search?q={key}
Search for a subject                      | 303 | /search?q={subject}
Search for a sequence                     | 303 | /search?q={subject}%203
Search for nothing                        | 303 | /search?q={nobody}
"""
"""Those that do not answer with 200."""


def pages(known: Known, redelivery: str) -> list[Query]:
    """Return all pages; `redelivery` is a plan for `known.key` alone."""
    names = {name: quote(text, safe="") for name, text in vars(known).items()}
    queries = [Query("console", each.name, (each.path,)) for each in SCREENS]
    for line in f"{PAGES}{OTHERS}".split("\n"):
        if line:
            name, *status, address = (part.strip() for part in line.split("|"))
            ends = tuple(map(int, status)) or (200,)
            where = address.format(**names, redelivery=redelivery)
            queries.append(Query("console", name, (where,), ends))
    return queries


PREFIX = "/api/v1"
LONG = frozenset({f"{PREFIX}/check", f"{PREFIX}/receipts"})
"""What has 30 s, and is asked for once."""

READS = """
/entries - limit=500 type={nobody} type={rare_type} stream={stream}&batch={batch} subject={subject}
/entries since={since}&until={until}&type={nobody} before={entries_middle}
/subjects - limit=500 prefix={nobody} held=stopped held=retrying&limit=500 held=any&after=m_5
/subjects silenced=true
/subjects/named name={subject} name={stopped}
/subjects/named/why name={subject} name={stopped}
/batches stream={stream} stream={stream}&before={diverged}&limit=500
/quarantine - open=false&limit=500 reason=body_too_large open=false&before={quarantine_middle}
/suppressed - limit=500 subject={subject} cause=overtaken&stream={stream} before={suppressed_middle}
/attempts - limit=500 endpoint=payouts endpoint=partner-1 outcome=delivered outcome=rejected
/attempts outcome=refused endpoint=archive&outcome=delivered since={since}&until={until}
/attempts before={attempts_middle} before={attempts_middle}&endpoint=partner-1
/dead-letters - open=false&limit=500 resolved=true endpoint=ledger subject={stopped}
/dead-letters reason=exhausted open=false&before={dead_middle}
/replays - limit=500 before={replay_middle}
/replays/{planned}/items - after=50000&limit=500
/replays/{applying}/items - after=50000&limit=500
/proposals - open=false&before={until} target=quarantine%20{quarantined}
/overview - minutes=180
/audit - limit=500 actor={nobody} action=endpoint since={since}&until={until} before={action_middle}
"""
"""A path and its filters, one read each; `-` is none."""

PLAIN = """
/entries/{key} /entries/{key}/why /entries/{key}/trace /entries/{key}/attempts /streams
/streams/{stream} /batches/{stream}/{batch} /batches/{stream}/{diverged}/diff
/quarantine/{quarantined} /suppressed/{suppressed} /dead-letters/{dead} /replays/{planned}
/replays/{planned}/status /replays/{applying} /replays/{applying}/status /proposals/{proposal}
/triage /endpoints /endpoints/payouts /endpoints/archive /endpoints/partner-1 /status /dispatchers
/database /tokens
"""
"""Paths without a filter."""


def reads(known: Known) -> list[Query]:
    """Return all of them but the `LONG` ones."""
    names = {name: quote(text, safe="") for name, text in vars(known).items()}
    paths = PLAIN.format(**names).split()
    for line in READS.format(**names).strip().split("\n"):
        path, *filters = line.split()
        paths += [path if each == "-" else f"{path}?{each}" for each in filters]
    return [Query("api", path, (f"{PREFIX}{path}",)) for path in paths]
