"""All commands that list or show."""

import shlex

from holdfast.sink.contract.exits import ExitCode
from tests.benchmarks.queries.known import Known
from tests.benchmarks.queries.query import Query

TOLD = (ExitCode.OK, ExitCode.FAILED, ExitCode.NOTHING_MATCHED, ExitCode.DEGRADED)
"""All but a wrong word: what the database holds is of no concern here."""

LISTS = """
entries list: | --type {nobody} | --type {rare_type} | --stream {stream} --batch {batch}
entries list: --subject {subject} | --since {since} --until {until} --type {nobody}
entries list: --before {entries_middle}
entries: tail | tail --type {nobody} | show {key}
why: {key} | {stopped}
trace: {key}
subjects list: | --held stopped | --held retrying | --held behind | --held any | --prefix {nobody}
subjects: list --held stopped --after m_5 | show {stopped}
stream: list | show {stream}
batch: list {stream} | list {stream} --before {diverged} | show {stream} {batch}
batch: diff {stream} {diverged}
quarantine: list | list --all | list --reason body_too_large | show {quarantined}
suppressed: list | list --cause overtaken | list --subject {subject} | show {suppressed}
attempts list: | {key} | --subject {subject} | --endpoint payouts | --endpoint partner-1
attempts list: --outcome delivered | --outcome rejected | --outcome refused
attempts list: --before {attempts_middle}
dead: list | list --all | list --endpoint ledger | list --reason exhausted | show {dead}
replay: list | show {planned} | show {planned} --items | status {applying}
endpoint: list | show payouts | show archive | show partner-1
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
    names, found = {name: shlex.quote(text) for name, text in vars(known).items()}, []
    for line in LISTS.format(**names).strip().split("\n"):
        command, _, more = line.partition(":")
        found += [(*command.split(), *shlex.split(each)) for each in more.split("|")]
    return [Query("cli", " ".join(words), words, TOLD) for words in found]
