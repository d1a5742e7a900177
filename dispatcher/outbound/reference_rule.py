"""Which references a process may resolve: those within its allowed prefixes and folders. Pure.

An operator who may change an endpoint decides where requests go and, by references, what they
contain. So a reference never reaches the process's own settings: its database, libpq's and
OpenTelemetry's variables, system files.
"""

import os.path
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.dispatcher.outbound.operator_headers import is_reference

ALLOW_PREFIX = "HOLDFAST_ALLOW_SECRET_ENV_PREFIX"
ALLOW_DIR = "HOLDFAST_ALLOW_SECRET_DIR"

DEFAULT_PREFIX = "HOLDFAST_SECRET_"
"""Default prefix of variables with secrets."""
DEFAULT_DIR = "/run/secrets/holdfast"
"""Default folder of files with secrets."""
OWN_PREFIXES = ("HOLDFAST_", "PG", "OTEL_")
"""Prefixes of the process's own settings: no reference reaches them, except `DEFAULT_PREFIX`."""

_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}_", re.ASCII)
"""A word and `_`: a part of a word would match unintended names, as D matches DATABASE_URL."""
_KERNEL = ("/proc", "/sys", "/dev")
"""Folders whose files are processes, their environment or devices."""


@dataclass(frozen=True, slots=True)
class ReferenceRule:
    """The allowed prefixes and folders. Raises `ValueError` for those that are too wide."""

    env_prefixes: tuple[str, ...] = (DEFAULT_PREFIX,)
    folders: tuple[str, ...] = (DEFAULT_DIR,)

    def __post_init__(self) -> None:
        """Refuse prefixes and folders through which references reach the process's settings."""
        for prefix in self.env_prefixes:
            if (
                not _PREFIX.fullmatch(prefix)
                or _is_own(prefix)
                or any(own.startswith(prefix) for own in OWN_PREFIXES)
            ):
                raise ValueError(
                    f"{ascii(prefix)[:80]} cannot be a prefix of variables with secrets: it is the"
                    f" beginning of a name, such as {DEFAULT_PREFIX}, of at least 4 characters and"
                    f" with _ at its end, and no variable that begins with"
                    f" {', '.join(OWN_PREFIXES)} has it"
                )
        for folder in self.folders:
            if not is_usable_folder(folder):
                raise ValueError(
                    f"{ascii(folder)[:80]} cannot be a folder of secrets: it is an absolute path"
                    f" without .., such as {DEFAULT_DIR}, and not / or in {', '.join(_KERNEL)}"
                )

    def fault(self, reference: str) -> str | None:
        """Return why `reference` (`env:VAR` or `file:PATH`) is not resolved, or None.

        Checks only the path of a file; the code that opens it checks where links lead.
        """
        kind, _, name = reference.partition(":")
        if kind == "env":
            allowed = name.startswith(self.env_prefixes) and not _is_own(name)
        else:
            path = os.path.normpath(name)
            up = ".." in name.split("/")
            allowed = not up and any(is_below(path, folder) for folder in self.folders)
        return None if allowed else f"{reference} is not allowed: {self.says}"

    def fault_of(self, references: Iterable[str]) -> str | None:
        """Return the fault of the first of `references` that has one, or None."""
        return next((fault for each in references if (fault := self.fault(each))), None)

    @property
    def says(self) -> str:
        """What is allowed, in words."""
        variables = " or ".join(f"{prefix}*" for prefix in self.env_prefixes)
        return (
            f"a reference names a variable {variables} or a file below {' or '.join(self.folders)}"
            f" (--secret-env-prefix and --secret-dir of the dispatcher, {ALLOW_PREFIX} and"
            f" {ALLOW_DIR} of every process)"
        )


def rule_of(environment: Mapping[str, str]) -> ReferenceRule:
    """Return the rule in the environment; raises `ValueError`. An empty value counts as unset.

    >>> rule_of({ALLOW_PREFIX: "PAYOUTS_:LEDGER_"}).env_prefixes
    ('PAYOUTS_', 'LEDGER_')
    """
    prefixes, folders = environment.get(ALLOW_PREFIX), environment.get(ALLOW_DIR)
    return rule_with(prefixes.split(":") if prefixes else [], folders.split(":") if folders else [])


def rule_with(prefixes: Iterable[str], folders: Iterable[str]) -> ReferenceRule:
    """Return the rule of these prefixes and folders; empty ones default. Raises `ValueError`."""
    return ReferenceRule(
        tuple(dict.fromkeys(prefixes)) or (DEFAULT_PREFIX,),
        tuple(dict.fromkeys(folders)) or (DEFAULT_DIR,),
    )


def references_of(settings: Mapping[str, Any]) -> list[str]:
    """Return every reference in the settings of an endpoint, by column; columns may be missing."""
    values = [
        *settings.get("secret_refs", ()),
        *settings.get("headers", {}).values(),
        *(settings.get(column) for column in ("ca_ref", "client_cert_ref", "client_key_ref")),
    ]
    return [each for each in values if isinstance(each, str) and is_reference(each)]


def is_usable_folder(folder: str) -> bool:
    """Return whether files below `folder` may be read as secrets."""
    if (
        not folder.startswith("/")
        or folder.startswith("//")
        or ".." in folder.split("/")
        or "\0" in folder
    ):
        return False
    path = os.path.normpath(folder)
    return path != "/" and not any(path == own or is_below(path, own) for own in _KERNEL)


def is_below(path: str, folder: str) -> bool:
    """Return whether `path` is inside `folder`; both are absolute."""
    return path.startswith(os.path.normpath(folder) + "/")


def _is_own(name: str) -> bool:
    return name.startswith(OWN_PREFIXES) and not name.startswith(DEFAULT_PREFIX)
