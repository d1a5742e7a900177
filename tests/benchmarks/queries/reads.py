"""All reads of the API, with filters and later pages."""

from urllib.parse import quote

from tests.benchmarks.queries.known import Known
from tests.benchmarks.queries.query import Query

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
/endpoints /endpoints/payouts /endpoints/archive /endpoints/partner-1 /status /dispatchers
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
