"""The report of the demo: JSON for programs, and a summary for people."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from holdfast.deploy.local.demo import story
from holdfast.deploy.local.demo.database import Databases, Row
from holdfast.deploy.local.demo.processes import Kill
from holdfast.deploy.local.demo.recompute import Action, Recomputed, Verdict, audit, expected
from holdfast.deploy.local.demo.story import money
from holdfast.sink.contract.canonical import rfc3339


@dataclass(frozen=True)
class Report:
    """The result of a run, as in `report.json`."""

    events: int
    decisions: int
    entries: int
    webhooks_sent: int
    actions_applied: int
    actions_lost: int
    actions_repeated: int
    actions_altered: int
    out_of_order: int
    duplicates_absorbed: int
    unknown_outcomes: int
    spark_kills: int
    dispatcher_kills: int
    quarantined: int
    quarantined_expected: int
    late: int
    future_dated: int
    duplicates_in_stream: int
    held_at_the_end: int
    seconds: float
    story: tuple[dict[str, Any], ...]
    broker_kills: int | None = None
    """None without a broker."""
    records_missing: int = 0
    """Lines that the producer wrote and the topic does not hold."""

    @property
    def kept(self) -> bool:
        """Whether each decision was applied once, in order, although its parts were killed."""
        wrong = (
            self.actions_lost,
            self.actions_repeated,
            self.actions_altered,
            self.out_of_order,
            self.quarantined - self.quarantined_expected,
            self.records_missing,
        )
        killed = self.spark_kills > 0 and self.dispatcher_kills > 0 and self.broker_kills != 0
        return not any(wrong) and killed

    def write(self, path: Path) -> None:
        path.write_text(self.as_json() + "\n", encoding="utf-8")

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def make(
    databases: Databases, recomputed: Recomputed, spark: Kill, dispatcher: Kill, seconds: float
) -> Report:
    """Compare the actions of the payouts service with the decisions of the event files."""
    verdict: Verdict = audit(
        expected(recomputed.decisions),
        [applied_action(row) for row in databases.receiver_actions()],
    )
    numbers, received = databases.progress(), databases.receiver_counts()
    return Report(
        events=recomputed.lines,
        decisions=len(recomputed.decisions),
        entries=numbers["entries"],
        webhooks_sent=received["received"],
        actions_applied=verdict.applied,
        actions_lost=verdict.lost,
        actions_repeated=verdict.repeated,
        actions_altered=verdict.altered,
        out_of_order=verdict.out_of_order,
        duplicates_absorbed=received["duplicates"],
        unknown_outcomes=numbers["unknown_outcomes"],
        spark_kills=int(spark.proved),
        dispatcher_kills=int(dispatcher.proved),
        quarantined=numbers["quarantined"],
        quarantined_expected=recomputed.unusable,
        late=recomputed.late("late"),
        future_dated=recomputed.late("future_dated"),
        duplicates_in_stream=recomputed.late("duplicate"),
        held_at_the_end=received["held"],
        seconds=round(seconds, 1),
        story=tuple(_chapter(row) for row in databases.receiver_merchants([story.HERO])),
    )


def show(report: Report, console: Console) -> None:
    """Print the summary."""
    console.print()
    console.print(_table(report))
    console.print()
    console.print(f"{story.HERO}, from the payouts service's own tables:")
    for chapter in report.story:
        console.print(
            f"  {chapter['window_start'][11:16]}-{chapter['window_end'][11:16]}"
            f"  {money(chapter['exposure_minor'], chapter['currency']):>8} against a limit of"
            f" {money(chapter['limit_minor'], chapter['currency'])}: {chapter['action']},"
            f" applied {chapter['applied_at'][11:19]}"
        )
    console.print()
    console.print(
        verdict(report), soft_wrap=True, style="bold green" if report.kept else "bold red"
    )


def verdict(report: Report) -> str:
    """Return the result in one sentence."""
    if report.kept:
        killed = (
            "Spark and the dispatcher were both killed"
            if report.broker_kills is None
            else "The broker, Spark and a dispatcher were killed"
        )
        return (
            f"{killed}, and each of the {report.decisions}"
            " decisions was applied once, in order: nothing lost, nothing repeated."
        )
    kills = [
        f"{name} was not killed at the planned point"
        for name, count in (
            ("Spark", report.spark_kills),
            ("the dispatcher", report.dispatcher_kills),
            ("the broker", report.broker_kills),
        )
        if count == 0
    ]
    counts = [
        f"{count} {what}"
        for count, what in (
            (report.actions_lost, "lost"),
            (report.actions_repeated, "repeated"),
            (report.out_of_order, "out of order"),
            (report.actions_altered, "altered"),
            (report.records_missing, "records missing in the topic"),
            (
                abs(report.quarantined - report.quarantined_expected),
                "quarantined or accepted by mistake",
            ),
        )
        if count
    ]
    return f"The guarantee was not met: {', '.join(counts + kills)}."


def _table(report: Report) -> Table:
    source = "files" if report.broker_kills is None else "topic's records"
    brokers = [(report.broker_kills, "kill of the broker, while records were written")]
    table = Table(title="What happened", title_justify="left", show_header=False)
    table.add_column(justify="right", style="bold")
    table.add_column()
    for section in (
        (
            (report.events, "lines in two hours of traffic, of which"),
            (report.duplicates_in_stream, "duplicate events, not counted again"),
            (report.late, "events after their window's cutoff, recorded"),
            (report.future_dated, "events dated in the far future, recorded"),
            (report.quarantined, "invalid lines, quarantined"),
        ),
        (
            (report.decisions, f"decisions expected, recomputed from the {source}"),
            (report.entries, "entries in the outbox"),
        ),
        (
            (report.spark_kills, "kill of Spark: batch committed, but not in its checkpoint"),
            (
                report.dispatcher_kills,
                "kill of the dispatcher: webhooks applied, but not settled",
            ),
            *(brokers if report.broker_kills is not None else ()),
            (report.unknown_outcomes, "attempts of unknown outcome, retried with the same keys"),
        ),
        (
            (report.webhooks_sent, "webhooks received by the payouts service, of which"),
            (report.duplicates_absorbed, "duplicates, recognised by their key"),
            (report.actions_applied, "actions applied"),
        ),
        (
            (report.actions_lost, "actions lost"),
            (report.actions_repeated, "actions repeated"),
            (report.out_of_order, "actions out of order"),
        ),
    ):
        for count, what in section:
            table.add_row(f"{count:,}", what)
        table.add_section()
    return table


def applied_action(row: Row) -> Action:
    """Return an action that the payouts service applied, from a row of its tables."""
    return Action(
        key=row["key"],
        merchant_id=row["merchant_id"],
        action=row["action"],
        window_end=rfc3339(row["window_end"]) if row["window_end"] else "",
        exposure_minor=row["exposure_minor"] or 0,
    )


def _chapter(row: Row) -> dict[str, Any]:
    times = ("window_start", "window_end", "applied_at")
    return {name: rfc3339(value) if name in times else value for name, value in row.items()}
