"""What is wrong, in order of harm."""

from typing import Annotated

from typing_extensions import TypedDict

from holdfast.dispatcher.operators.common import verbs
from holdfast.dispatcher.operators.common.session import Row
from holdfast.dispatcher.operators.common.text import display, visible
from holdfast.dispatcher.operators.overview.rules import (
    UNDELIVERED_MINUTES,
    UNDELIVERED_MINUTES_MAX,
)
from holdfast.dispatcher.operators.triage.store import Triage
from holdfast.sink.contract.exits import ExitCode

GROUP = verbs.Group("triage", help="", store=Triage, path="/triage", tag="status")


class Amount(TypedDict):
    """Money of the decisions that wait."""

    currency: str
    minor: Annotated[int, verbs.Doc("In minor units of the currency.")]


class FindingNow(TypedDict):
    """One thing that is wrong."""

    kind: Annotated[str, verbs.Doc("As of a need in `/overview`, or `job_stopped`.")]
    where: Annotated[str | None, verbs.Doc("The endpoint or the stream; null: all.")]
    sentence: str
    cause: Annotated[str, verbs.Doc("The likely cause, as far as the database shows it.")]
    since: verbs.Time | None
    subjects: Annotated[
        int | None,
        verbs.Doc("How many wait because of it, counted to 100,000; null: not known."),
    ]
    amounts: Annotated[
        list[Amount],
        verbs.Doc(
            "Sums of `amount_minor`, else `exposure_minor`, by `currency` in the `data` of the"
            " oldest 2,000 entries that wait; empty for viewers."
        ),
    ]
    command: Annotated[str, verbs.Doc("The command to start with.")]
    page: Annotated[str | None, verbs.Doc("The page of the runbook, by its name.")]


class TriageNow(TypedDict):
    """What is wrong, the most harmful first."""

    at: Annotated[verbs.Time, verbs.Doc("By the database's clock.")]
    findings: list[FindingNow]


def _show(report: Row, _: Row) -> verbs.Text:
    for number, each in enumerate(report["findings"], 1):
        yield f"{number}. {visible(each['sentence'])}"
        yield verbs.Facts(_facts(each), WIDTH)
    if not report["findings"]:
        yield "nothing is wrong that the database shows"


WIDTH = 7


def _facts(each: Row) -> Row:
    facts: Row = {"cause": each["cause"]}
    if each["since"]:
        facts["since"] = each["since"]
    if each["amounts"]:
        sums = (f"{amount['minor']:,} {amount['currency']}" for amount in each["amounts"])
        facts["money"] = f"{', '.join(sums)} in minor units"
    facts["next"] = each["command"]
    if each["page"]:
        facts["page"] = f"deploy/runbook/{each['page']}.md"
    return {name: display(value) for name, value in facts.items()}


def without_amounts(report: Row) -> Row:
    """Return the report without what comes from the data of merchants."""
    return report | {"findings": [each | {"amounts": []} for each in report["findings"]]}


@GROUP.verb(
    "",
    help="Show what is wrong, in order of harm: since when, how many subjects and how much money"
    " wait, the likely cause, the next command and the page of the runbook.\n\n"
    "Exit code 4 if anything is wrong.",
    text=_show,
    route=verbs.Route("Show what is wrong, in order of harm."),
    result=TriageNow,
    bodies=verbs.Bodies(without_amounts, for_operators=True),
    ends=lambda report: ExitCode.DEGRADED if report["findings"] else ExitCode.OK,
)
def triage(
    store: Triage,
    undelivered_minutes: Annotated[
        int,
        verbs.Param(
            kind=verbs.Kind.SETTING,
            command_help="Minutes after which an undelivered entry needs a person.",
            option="--undelivered-minutes",
            env="HOLDFAST_UNDELIVERED_MINUTES",
            limits=(1, UNDELIVERED_MINUTES_MAX),
            command_default=UNDELIVERED_MINUTES,
        ),
    ] = UNDELIVERED_MINUTES,
) -> Row:
    """Return what is wrong."""
    return store.report(undelivered_minutes)
