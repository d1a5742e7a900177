"""All console pages, with filters and later pages: a name and an address each."""

from urllib.parse import quote

from holdfast.dispatcher.api.console.frame.templating import SCREENS
from tests.benchmarks.queries.known import Known
from tests.benchmarks.queries.query import Query

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
Subjects any                              | /subjects?held=any
Subjects stopped, by name                 | /subjects?held=stopped&prefix=m_9
Subjects retrying, by no name             | /subjects?held=retrying&prefix={nobody}
Subjects stopped, page in the middle      | /subjects?held=stopped&after=m_5
Subjects page in the middle               | /subjects?after=m_5
Subjects silenced                         | /subjects?silenced=yes
Subject                                   | /subjects/show?name={subject}
Subject that is stopped                   | /subjects/show?name={stopped}
Subject, to pass                          | /subjects/pass?name={stopped}&endpoint=payouts
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
    found = [Query("console", each.name, (each.path,)) for each in SCREENS]
    for line in f"{PAGES}{OTHERS}".split("\n"):
        if line:
            name, *status, address = (part.strip() for part in line.split("|"))
            ends = tuple(map(int, status)) or (200,)
            where = address.format(**names, redelivery=redelivery)
            found.append(Query("console", name, (where,), ends))
    return found
