"""Known vulnerabilities of the pinned packages: by pip-audit, or by a copy of the OSV database.

pip-audit skips a package that its service does not know, and ends with 0. Here that is no pass.
"""

import json
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from holdfast.deploy.release.report import Report

Pins = Collection[tuple[str, str]]

SECONDS = 600


def ask(pip_audit: Path, pinned: Pins, *options: str) -> Report:
    """Ask pip-audit's service about every pin; what it did not answer is left out."""
    report, answered = Report(), 0
    for pins in _one_version_each(pinned):
        done = _run(pip_audit, pins, options)
        try:
            answers = json.loads(done.stdout)["dependencies"]
        except (ValueError, KeyError):
            lines = done.stderr.strip().splitlines() or ["no answer"]
            report.left_out.append(f"the service was not reached: {lines[-1]}")
            continue
        answered += sum("skip_reason" not in each for each in answers)
        report.faults += [
            f"{each['name']} {each['version']}: {advisory['id']}"
            for each in answers
            for advisory in each.get("vulns", ())
        ]
    if silent := len(pinned) - answered:
        report.left_out.append(f"not reached: no answer for {silent} of {len(pinned)} packages")
    return report


def _one_version_each(pinned: Pins) -> Iterator[Pins]:
    """Divide pins so that none names a package twice, as pip-audit asks."""
    left = set(pinned)
    while left:
        chosen = set(dict(sorted(left)).items())
        yield chosen
        left -= chosen


def _run(pip_audit: Path, pins: Pins, options: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{name}=={version}\n" for name, version in sorted(pins))
        file.flush()
        command = (str(pip_audit), "--requirement", file.name, "--no-deps", "--disable-pip")
        return subprocess.run(
            (*command, "--progress-spinner", "off", "--format", "json", *options),
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )


def look_up(database: Path, pinned: Pins) -> Report:
    """Compare pins with a folder or zip of OSV's records, as its export of PyPI has them.

    Raises `OSError` if it cannot be read, `ValueError` if it is no such export.
    """
    report, records = Report(), 0
    known: dict[str, list[str]] = {}
    for name, version in pinned:
        known.setdefault(name, []).append(version)
    for record in _records(database):
        records += 1
        for affected in record.get("affected", ()):
            package = affected.get("package", {})
            if package.get("ecosystem") != "PyPI" or record.get("withdrawn"):
                continue
            name = canonicalize_name(package["name"])
            report.faults += [
                f"{name} {version}: {record['id']}"
                for version in known.get(name, ())
                if _is_affected(version, affected)
            ]
    if not records:
        raise ValueError(f"{database} has no record of OSV")
    report.faults = sorted(set(report.faults))
    report.notes.append(f"{len(pinned)} packages against {records} records")
    return report


def _records(database: Path) -> Iterator[dict[str, Any]]:
    if database.is_dir():
        for file in sorted(database.rglob("*.json")):
            yield json.loads(file.read_bytes())
    else:
        with ZipFile(database) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield json.loads(archive.read(name))


def _is_affected(version: str, affected: dict[str, Any]) -> bool:
    if version in affected.get("versions", ()):
        return True
    return any(
        _is_in(Version(version), each.get("events", ()))
        for each in affected.get("ranges", ())
        if each.get("type") == "ECOSYSTEM"
    )


def _is_in(version: Version, events: Collection[dict[str, str]]) -> bool:
    """Whether the last event at or before a version leaves it affected."""
    inside = False
    for event in sorted(events, key=_when):
        [kind] = event
        if kind == "introduced":
            inside = inside or _when(event) <= version
        elif kind == "fixed":
            inside = inside and _when(event) > version
        elif kind == "last_affected":
            inside = inside and _when(event) >= version
    return inside


def _when(event: dict[str, str]) -> Version:
    [text] = event.values()
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
