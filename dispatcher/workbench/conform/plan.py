"""Turns the arguments of `holdfast conform` into a plan and a probe; raises `ValueError`."""

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from holdfast.dispatcher.outbound.target import url_fault
from holdfast.dispatcher.workbench.conform.kit import Plan
from holdfast.dispatcher.workbench.conform.probe import CommandProbe, Probe, UrlProbe
from holdfast.dispatcher.workbench.conform.rules import Rule
from holdfast.dispatcher.workbench.conform.run import RULES
from holdfast.dispatcher.workbench.conform.sample import SUBJECT, Sample
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.canonical import NotCanonical
from holdfast.sink.contract.envelope import TYPE_FORM, is_type
from holdfast.sink.contract.wire import INQUIRY_PATH

_KEY = "{key}"


class NoSuchRule(ValueError):
    """A pattern of --only or --skip matches no rule."""


def plan_of(
    url: str,
    secrets: Sequence[Secret],
    *,
    seed: int,
    type_: str | None = None,
    data: bytes | None = None,
    inquiry: str | None = None,
    patient_seconds: float = 0.0,
    deadline_seconds: float = 15.0,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    ca_file: Path | None = None,
) -> Plan:
    """Return the plan; `secrets` are the receiver's one or two secrets. Raises `ValueError`."""
    if fault := url_fault(url):
        raise ValueError(fault)
    inquiry_url = inquiry or _root(url) + INQUIRY_PATH + _KEY
    if (fault := url_fault(inquiry_url)) or _KEY not in inquiry_url:
        raise ValueError(f"--inquiry: {fault or f'it must contain {_KEY}'}")
    if ca_file is not None:
        try:
            ssl.create_default_context(cafile=str(ca_file))
        except OSError as error:
            raise ValueError(f"--ca-file {ca_file} cannot be used: {error.strerror}") from None
    return Plan(
        url=url,
        inquiry_url=inquiry_url,
        secret=secrets[0],
        second_secret=secrets[1] if len(secrets) > 1 else None,
        sample=_sample(seed, type_, data),
        deadline_seconds=deadline_seconds,
        patient_seconds=patient_seconds,
        ca_file=None if ca_file is None else str(ca_file),
        wants=_wants(only, skip),
    )


def probe_of(url: str | None, command: str | None) -> Probe | None:
    """Return the configured probe, or None; raises `ValueError`."""
    if url is not None and command is not None:
        raise ValueError("pass only one of --probe and --probe-command")
    if url is not None:
        return UrlProbe(url)
    return None if command is None else CommandProbe(command)


def _sample(seed: int, type_: str | None, data: bytes | None) -> Sample:
    if (type_ is None) != (data is None):
        raise ValueError("--type and --data go together")
    if type_ is None or data is None:
        return Sample(seed)
    if not is_type(type_):
        raise ValueError(f"--type must be {TYPE_FORM}")
    try:
        members: Any = json.loads(data.decode())
    except (ValueError, RecursionError):
        raise ValueError("--data is not JSON in UTF-8") from None
    if not isinstance(members, Mapping):
        raise ValueError("--data is not a JSON object")  # noqa: TRY004 - the file is invalid
    if SUBJECT not in json.dumps(members):
        raise ValueError(
            f"--data has no {SUBJECT}: put it where the receiver reads the ordering key, because"
            " each check needs its own subject"
        )
    sample = Sample(seed, type_, members)
    try:
        sample.delivery("first")
    except NotCanonical as error:
        raise ValueError(f"--data: {error}") from None
    return sample


def _wants(only: Sequence[str], skip: Sequence[str]) -> Callable[[Rule], bool]:
    for pattern in (*only, *skip):
        if not any(fnmatchcase(rule.id, pattern) for rule in RULES):
            raise NoSuchRule(f"no rule matches {pattern!r}")

    def wants(rule: Rule) -> bool:
        chosen = not only or any(fnmatchcase(rule.id, pattern) for pattern in only)
        return chosen and not any(fnmatchcase(rule.id, pattern) for pattern in skip)

    return wants


def _root(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))
