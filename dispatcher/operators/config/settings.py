"""Every setting that Holdfast reads from the environment, in one list. Pure.

A test compares the list with the variables that the packages read.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from holdfast.dispatcher.outbound.reference_rule import (
    ALLOW_DIR,
    ALLOW_PREFIX,
    DEFAULT_DIR,
    DEFAULT_PREFIX,
    rule_of,
)

PREFIX = "HOLDFAST_"
HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Setting:
    """An environment variable."""

    name: str
    what: str
    default: str | None
    option: str | None = None
    """The option that overrides it; None: there is none."""
    secret: bool = False
    """Whether its value may contain a secret."""
    form: str | None = None
    """A regular expression for its value; None: any value."""


DSN = "HOLDFAST_DSN"
FAILPOINTS = "HOLDFAST_FAILPOINTS"

SETTINGS = (
    Setting(DSN, "the database of every command", None, "--dsn", secret=True),
    Setting(
        "HOLDFAST_REISSUE_LIMIT",
        "actions that one person may repeat alone in 24 hours; it only lowers 10",
        "10",
        "--limit",
        form="[0-9]{1,3}|1000",
    ),
    Setting(
        "HOLDFAST_UNDELIVERED_MINUTES",
        "minutes after which an undelivered entry needs a person",
        "15",
        "--undelivered-minutes",
        form="[1-9][0-9]{0,4}",
    ),
    Setting(
        ALLOW_PREFIX,
        "prefixes of variables with secrets of endpoints, separated by `:`",
        DEFAULT_PREFIX,
        "--secret-env-prefix",
    ),
    Setting(
        ALLOW_DIR,
        "folders of files with secrets of endpoints, separated by `:`",
        DEFAULT_DIR,
        "--secret-dir",
    ),
    Setting("HOLDFAST_SPARK_LOG", "any value: the job shows Spark's full log", None),
    Setting(
        "HOLDFAST_SPARK_JAVA_OPTIONS",
        "options for the job's JVM, after our own; not its heap",
        None,
        secret=True,  # a -D may be a password
    ),
    Setting(
        "HOLDFAST_KAFKA_JARS",
        "folder with the jars of Spark's Kafka connector; default .holdfast/kafka/connector",
        None,
    ),
    Setting(
        "HOLDFAST_DOCS_URL",
        "address of your site of the documents, which errors then name",
        None,
        form=r"https?://\S+",
    ),
    Setting(FAILPOINTS, "points at which a test stops a process; never set it", None),
)

LIBPQ = frozenset(
    f"PG{name}"
    for name in (
        *("HOST", "HOSTADDR", "PORT", "DATABASE", "USER", "PASSWORD", "PASSFILE", "SERVICE"),
        *("SERVICEFILE", "OPTIONS", "APPNAME", "SSLMODE", "SSLCERT", "SSLKEY", "SSLROOTCERT"),
        *("SSLCRL", "SSLNEGOTIATION", "REQUIREAUTH", "CHANNELBINDING", "GSSENCMODE", "KRBSRVNAME"),
        *("CONNECT_TIMEOUT", "CLIENTENCODING", "TARGETSESSIONATTRS", "LOADBALANCEHOSTS"),
    )
)
"""Defaults for what a DSN leaves out (libpq, "Environment Variables")."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a setting, redacted, and its source."""

    setting: Setting
    shown: str | None
    source: str
    """`environment`, `option` or `default`."""


def values(environment: Mapping[str, str]) -> list[Value]:
    """Return the value of every setting; an empty variable counts as not set."""
    return [_value(setting, environment.get(setting.name)) for setting in SETTINGS]


def unknown(
    environment: Collection[str], references: Collection[str] = ()
) -> dict[str, str | None]:
    """Return the variables with our prefix that nothing reads, with the nearest known name.

    `references` are the variables that endpoints name as `env:VAR`: those are read. Variables with
    `DEFAULT_PREFIX` are for references, perhaps of the next rotation.
    """
    names = [setting.name for setting in SETTINGS]
    strange = sorted(
        name
        for name in environment
        if name.startswith(PREFIX)
        and not name.startswith(DEFAULT_PREFIX)
        and name not in names
        and name not in references
    )
    return {name: _nearest(name, names) for name in strange}


def unfit(environment: Mapping[str, str]) -> list[str]:
    """Return the settings with an invalid value, and the one for tests only, if set."""
    return [
        setting.name
        for setting in SETTINGS
        if (value := environment.get(setting.name))
        and (
            setting.name == FAILPOINTS
            or (setting.form is not None and not re.fullmatch(setting.form, value, re.ASCII))
            or not _is_rule(setting.name, value)
        )
    ]


def libpq_variables(environment: Collection[str]) -> list[str]:
    """Return the names of the set variables that complete a DSN."""
    return sorted(LIBPQ & set(environment))


def _is_rule(name: str, value: str) -> bool:
    """Return whether a value is a valid rule for references; true for other settings."""
    try:
        rule_of({name: value})
    except ValueError:
        return False
    return True


def _nearest(name: str, names: list[str]) -> str | None:
    """Return the most similar of `names`, compared without the prefix."""
    ends = [each.removeprefix(PREFIX) for each in names]
    matches = get_close_matches(name.removeprefix(PREFIX), ends, 1, 0.6)
    return PREFIX + matches[0] if matches else None


def _value(setting: Setting, text: str | None) -> Value:
    if not text:
        return Value(setting, setting.default, "default")
    return Value(setting, HIDDEN if setting.secret else text, "environment")
