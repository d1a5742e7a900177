"""The pinned packages of `requirements/*.txt`, and their licences against `licences.toml`."""

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Self

from license_expression import ExpressionError, get_spdx_licensing
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from holdfast.deploy.release.report import Report
from holdfast.deploy.release.version import ROOT

FOLDER = ROOT / "requirements"

_PIN = re.compile(r"^\w.*?==[^\\\n]*", re.MULTILINE)


def pins(file: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of each package of a file that this platform installs."""
    for line in _PIN.findall(file.read_text()):
        pin = Requirement(line)
        if pin.marker is None or pin.marker.evaluate():
            [only] = pin.specifier
            yield canonicalize_name(pin.name), only.version


def all_pins(folder: Path = FOLDER) -> set[tuple[str, str]]:
    """Return the pins of every file of a folder."""
    return {pin for file in folder.glob("*.txt") for pin in pins(file)}


RULES = Path(__file__).with_name("licences.toml")

SPDX = get_spdx_licensing()


@dataclass(frozen=True, slots=True)
class Rules:
    """What `licences.toml` says, in SPDX expressions."""

    allowed: frozenset[str]
    meanings: Mapping[str, str]
    """By what a package says in a classifier or in its field `License`."""
    exceptions: Mapping[str, str]
    """The licence that one package may have besides, by its name."""

    @classmethod
    def read(cls, file: Path = RULES) -> Self:
        """Read a file. Raises `KeyError` for one that lacks a table."""
        content = tomllib.loads(file.read_text())
        exceptions = {name: each["licence"] for name, each in content["exceptions"].items()}
        return cls(frozenset(content["allowed"]), content["meanings"], exceptions)


def check_licences(
    places: Iterable[Path],
    *,
    pinned: Iterable[tuple[str, str]] | None = None,
    rules: Path = RULES,
    complete: bool = True,
) -> Report:
    """Compare the pinned packages (all files by default) with what is installed in `places`.

    `places` are folders of packages. A package that is in none of them is a fault; unless
    `complete`, it is left out.
    """
    read = Rules.read(rules)
    installed = {
        str(canonicalize_name(each.name)): each
        for each in distributions(path=[str(folder) for folder in places])
        if each.metadata["Name"]
    }
    report = Report()
    names = sorted({name for name, _ in (all_pins() if pinned is None else pinned)})
    for name in names:
        if name not in installed:
            gap = report.faults if complete else report.left_out
            gap.append(f"{name}: not installed here, so its licence was not read")
        elif (fault := _fault(name, installed[name], read)) is not None:
            report.faults.append(fault)
    report.notes.append(f"{len(names) - len(report.left_out)} packages")
    return report


def _fault(name: str, package: Distribution, rules: Rules) -> str | None:
    licence = expression(package, rules.meanings)
    if (exception := rules.exceptions.get(name)) is not None:
        if licence == exception:
            return None
        return f"{name}: its licence is {licence}, its exception in licences.toml is for another"
    if licence is None:
        return f"{name}: says no licence that licences.toml knows"
    if not _holds(SPDX.parse(licence), rules.allowed):
        return f"{name}: {licence} is not allowed"
    return None


def expression(package: Distribution, meanings: Mapping[str, str]) -> str | None:
    """Return a package's licence as an SPDX expression; None if it says none that is known.

    Several classifiers are taken for licences that all hold.
    """
    metadata = package.metadata
    classified = [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier") or []
        if each.startswith("License ::") and not each.endswith(("OSI Approved", "DFSG approved"))
    ]
    free = metadata["License"].strip() if "License" in metadata else ""
    if "License-Expression" in metadata:
        stated = metadata["License-Expression"]
    else:
        known = [meanings.get(each) for each in classified or [free]]
        stated = " AND ".join(each for each in known if each) if all(known) else free
    try:
        parsed = SPDX.parse(stated, validate=True)
    except ExpressionError:
        return None
    return None if parsed is None else str(parsed)


def _holds(parsed: object, allowed: Collection[str]) -> bool:
    if isinstance(parsed, SPDX.OR):
        return any(_holds(each, allowed) for each in parsed.args)
    if isinstance(parsed, SPDX.AND):
        return all(_holds(each, allowed) for each in parsed.args)
    return str(parsed) in allowed
