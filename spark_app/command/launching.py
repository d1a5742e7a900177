"""`--jars`, `--packages` and `--conf` of the commands that read a checkpoint where it lies."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.spark_app.input import connector
from holdfast.spark_app.runtime.launch import Launch, launched_by_spark_submit

_OPTIONS = {
    "jars": Annotated[
        list[str] | None,
        typer.Option(help="A jar that Spark loads when it starts. Can be repeated."),
    ],
    "packages": Annotated[
        list[str] | None,
        typer.Option(
            help="Maven coordinates that Spark downloads when it starts. Can be repeated."
        ),
    ],
    "conf": Annotated[
        list[str] | None, typer.Option(help="A setting of Spark as NAME=VALUE. Can be repeated.")
    ],
}


def with_launch(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the three options, which `run` takes together as `launch`."""

    def start(
        *, jars: list[str] | None, packages: list[str] | None, conf: list[str] | None, **given: Any
    ) -> None:
        run(**given, launch=launch_of(jars or [], packages or [], conf or []))

    hints = get_type_hints(run, include_extras=True)
    parameters = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, each in inspect.signature(run).parameters.items()
        if name != "launch"
    ]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    start.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    start.__annotations__ = {each.name: each.annotation for each in parameters}
    start.__name__, start.__doc__ = run.__name__, run.__doc__
    return start


def launch_of(jars: list[str], packages: list[str], conf: list[str]) -> Launch:
    """Return how Spark starts; raises CommandError (usage)."""
    submitted = launched_by_spark_submit()
    if submitted and (jars or packages):
        raise CommandError(
            "--jars and --packages are read when a JVM starts, and spark-submit has started this"
            " one: pass them to spark-submit, before the program. Nothing was started.",
            ExitCode.USAGE,
            code="conflicting_parameters",
        )
    loaded = connector.given(tuple(jars), tuple(packages)).settings
    launch = Launch.read(None, conf, submitted=submitted)
    return Launch(conf={**loaded, **launch.conf})
