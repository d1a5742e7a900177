"""The jars of Spark's Kafka connector, which pyspark does not contain.

Spark reads jars only when its JVM starts, so they are found before that.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.sink.contract.exits import CommandError, ExitCode

STAGED = ".holdfast/kafka/connector"
"""Where `make kafka-jars` puts them, relative to the working directory."""

ENVIRONMENT = "HOLDFAST_KAFKA_JARS"
"""Names another folder."""

COORDINATES = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"

_CONNECTOR = "spark-sql-kafka-0-10_*.jar"


@dataclass(frozen=True, slots=True)
class Jars:
    """What Spark loads when it starts: paths of jars, and Maven coordinates that it downloads."""

    paths: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """Settings of Spark."""
        found = {
            "spark.jars": ",".join(self.paths),
            "spark.jars.packages": ",".join(self.packages),
        }
        return {name: value for name, value in found.items() if value}


def find(jars: tuple[str, ...], packages: tuple[str, ...]) -> Jars:
    """Return the jars with the connector: those given, else those of a folder.

    The folder is that of `ENVIRONMENT`, else `STAGED`. Raises CommandError where there are none.
    """
    if jars or packages:
        return given(jars, packages)
    named = os.environ.get(ENVIRONMENT)
    folder = Path(named or STAGED).absolute()
    if not any(folder.glob(_CONNECTOR)):
        where = f"{ENVIRONMENT} names {folder}, which does not hold them" if named else None
        raise missing(where or f"there are none in {folder}")
    return Jars(tuple(str(jar) for jar in sorted(folder.glob("*.jar"))))


def given(jars: tuple[str, ...], packages: tuple[str, ...]) -> Jars:
    """Return the jars of `--jars` and `--packages`; raises CommandError for one that is missing."""
    split = tuple(jar for each in jars for jar in each.split(",") if jar)
    for jar in split:
        if ":" not in jar and not Path(jar).is_file():
            raise CommandError(
                f"there is no file {jar}. Nothing was started; --jars names the files of jars.",
                ExitCode.USAGE,
                code="jar_missing",
            )
    paths = tuple(jar if ":" in jar else str(Path(jar).absolute()) for jar in split)
    return Jars(paths, tuple(name for each in packages for name in each.split(",") if name))


def missing(why: str) -> CommandError:
    """Return the error of a start without the connector."""
    return CommandError(
        f"to read a topic, Spark needs the jars of {COORDINATES} and what it depends on, and {why}."
        " Nothing was started; `make kafka-jars` puts them there, --jars and"
        f" {ENVIRONMENT} name others, and `--packages {COORDINATES}` lets Spark download them.",
        ExitCode.USAGE,
        code="connector_missing",
    )
