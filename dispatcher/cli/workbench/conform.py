"""`holdfast conform`: send good and bad requests to a receiver and grade its answers."""

import asyncio
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.dispatcher.cli.options import AsJson, Wide
from holdfast.dispatcher.cli.output import console, print_json, print_rows, visible
from holdfast.dispatcher.cli.workbench import options
from holdfast.dispatcher.cli.workbench.destination import is_loopback
from holdfast.sink.contract.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from holdfast.dispatcher.workbench.conform.kit import Plan
    from holdfast.dispatcher.workbench.conform.probe import Probe
    from holdfast.dispatcher.workbench.conform.run import Report

SEED_MAX = 2**31 - 1
DEADLINE_SECONDS_MAX = 120
COLUMNS = ("grade", "rule", "what", "seen")


Url = Annotated[
    str, typer.Argument(metavar="URL", help="The URL that the receiver accepts POST at.")
]
SecretRef = Annotated[
    str | None, typer.Option("--secret-ref", help="env:VAR or file:PATH of the receiver's secret.")
]
SecondSecretRef = Annotated[
    str | None,
    typer.Option("--second-secret-ref", help="Its second secret, during a rotation."),
]
Type = Annotated[
    str | None,
    typer.Option("--type", help="The event type, if it is not a payout hold."),
]
Data = Annotated[
    str | None,
    typer.Option("--data", help="A file with `data` for --type; {subject} in a text is replaced."),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=SEED_MAX, help="Repeat the deliveries of an earlier run."),
]
ProbeUrl = Annotated[
    str | None, typer.Option("--probe", help='A URL with {key}: GET answers {"applied": n}.')
]
ProbeCommand = Annotated[
    str | None,
    typer.Option("--probe-command", help='A command with {key} that prints {"applied": n}.'),
]
Inquiry = Annotated[
    str | None,
    typer.Option("--inquiry", help="The inquiry URL with {key}; default: at the root of URL."),
]
Patient = Annotated[
    str | None, typer.Option("--patient", help="Send the first key again at this age: 6m, 2h.")
]
Deadline = Annotated[float, typer.Option("--deadline", help="Seconds allowed for each answer.")]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="Only these rules: 'time.*'; repeatable.")
]
Skip = Annotated[list[str] | None, typer.Option("--skip", help="Skip these rules; repeatable.")]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", help="Additional certificate authorities (PEM).")
]
Strict = Annotated[bool, typer.Option("--strict", help="Treat a warning as a failure.")]
Yes = Annotated[bool, typer.Option("--yes", help="Allow another machine: its receiver acts.")]


def conform(
    url: Url,
    secret_ref: SecretRef = None,
    second_secret_ref: SecondSecretRef = None,
    type_: Type = None,
    data: Data = None,
    seed: Seed = None,
    probe: ProbeUrl = None,
    probe_command: ProbeCommand = None,
    inquiry: Inquiry = None,
    patient: Patient = None,
    deadline: Deadline = 15.0,
    only: Only = None,
    skip: Skip = None,
    ca_file: CaFile = None,
    strict: Strict = False,
    yes: Yes = False,
    as_json: AsJson = False,
    _wide: Wide = False,
) -> None:
    """Grade a receiver in any language by its answers. IT ACTS: use a test system.

    It sends about 170 requests. About 40 are genuine: by default they block and release made-up
    merchants named conform-SEED-... docs/reference/conformance-rules.md lists the rules. Exit
    code 0: no rule failed; 1: one failed, or answers stopped; 2: usage; 3: no such rule.
    """
    with options.installed("conform"):
        from holdfast.dispatcher.workbench.conform import plan as planning  # noqa: PLC0415 - see options
    _require_valid(url, deadline, yes=yes)
    references = [secret_ref, second_secret_ref] if secret_ref else []
    try:
        counter = planning.probe_of(probe, probe_command)
        plan = planning.plan_of(
            url,
            options.secrets_of([each for each in references if each]),
            seed=secrets.randbelow(SEED_MAX) if seed is None else seed,
            type_=type_,
            data=None if data is None else options.bytes_of(data, "--data"),
            inquiry=inquiry,
            patient_seconds=0.0 if patient is None else options.seconds_of("--patient", patient),
            deadline_seconds=deadline,
            only=only or [],
            skip=skip or [],
            ca_file=ca_file,
        )
    except planning.NoSuchRule as error:
        raise CommandError(
            f"{error}. Nothing was sent.", ExitCode.NOTHING_MATCHED, code="unknown_rule"
        ) from None
    except ValueError as error:
        raise CommandError(
            f"{error}. Nothing was sent.", ExitCode.USAGE, code="invalid_value"
        ) from None
    report = _fire(plan, counter)
    if as_json:
        print_json({"url": url, "seed": plan.sample.seed, **report.content()})
    else:
        _show(report, plan)
    if not report.passes(strict=strict):
        raise typer.Exit(ExitCode.FAILED)


def _require_valid(url: str, deadline: float, *, yes: bool) -> None:
    from holdfast.dispatcher.outbound.target import url_fault  # noqa: PLC0415 - as above

    if fault := url_fault(url):
        raise CommandError(f"{fault}. Nothing was sent.", ExitCode.USAGE, code="invalid_url")
    if not is_loopback(url) and not yes:
        raise options.usage(
            f"{visible(url)} is not this machine. Its receiver acts on the deliveries of conform:"
            " use a test system, and add --yes.",
            code="confirmation_required",
        )
    if not 0.1 <= deadline <= DEADLINE_SECONDS_MAX:
        raise options.usage(
            f"--deadline must be 0.1 to {DEADLINE_SECONDS_MAX} seconds.", code="invalid_value"
        )


def _fire(plan: "Plan", counter: "Probe | None") -> "Report":
    from holdfast.dispatcher.workbench.conform.probe import ProbeFailed  # noqa: PLC0415 - as above
    from holdfast.dispatcher.workbench.conform.run import Unreachable, conform_to  # noqa: PLC0415 - as above

    try:
        return asyncio.run(conform_to(plan, counter))
    except Unreachable as error:
        raise CommandError(
            f"the receiver at {plan.url} cannot be graded: {error}. Start it, then try again.",
            code="receiver_unreachable",
        ) from None
    except ProbeFailed as error:
        raise CommandError(
            f"{error}. The receiver may have applied the deliveries sent so far, with seed"
            f" {plan.sample.seed}. Fix the probe and try again.",
            ExitCode.USAGE,
            code="probe_failed",
        ) from None


def _show(report: "Report", plan: "Plan") -> None:
    content = report.content()
    rows = [
        {"grade": r["grade"], "rule": r["rule"], "what": r["title"], "seen": visible(r["detail"])}
        for r in content["rules"]
    ]
    print_rows(rows, COLUMNS, f"{visible(plan.url)}, seed {plan.sample.seed}")
    out = console()
    for each in content["rules"]:
        if each["grade"] != "pass":
            _explain(out, each)
    if report.stopped is not None:
        out.print(f"Stopped: {visible(report.stopped)}.", markup=False)
    out.print(
        f"{content['passed']} passed, {content['failed']} failed, {content['warned']} warned;"
        f" {report.requests} requests in {report.seconds:.1f} s"
    )


def _explain(out: Any, each: dict[str, Any]) -> None:
    out.print(f"{each['grade']} {each['rule']}: {visible(each['detail'])}", markup=False)
    out.print(f"     rule: {each['title']} ({each['source']})", markup=False)
    out.print(f"     fix:  {each['fix']}", markup=False)
