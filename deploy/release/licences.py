"""The licence of each dependency, by what the installed package says, against `licences.toml`."""

import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from license_expression import ExpressionError, get_spdx_licensing
from packaging.utils import canonicalize_name

from deploy.release.report import Report
from deploy.release.requirements import all_pins

RULES = Path(__file__).with_name("licences.toml")

SPDX = get_spdx_licensing()


def check(
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
    read = tomllib.loads(rules.read_text())
    there = {
        str(canonicalize_name(each.name)): each
        for each in distributions(path=[str(place) for place in places])
        if each.metadata["Name"]
    }
    report = Report()
    names = sorted({name for name, _ in (all_pins() if pinned is None else pinned)})
    for name in names:
        if name not in there:
            gap = report.faults if complete else report.left_out
            gap.append(f"{name}: not installed here, so its licence was not read")
        elif (fault := _fault(name, there[name], read)) is not None:
            report.faults.append(fault)
    report.notes.append(f"{len(names) - len(report.left_out)} packages")
    return report


def _fault(name: str, package: Distribution, rules: dict[str, object]) -> str | None:
    said = expression(package, rules["meanings"])  # type: ignore[arg-type]
    exception = rules.get("exceptions", {}).get(name)  # type: ignore[attr-defined]
    if exception is not None:
        if said == exception["licence"]:
            return None
        return f"{name}: its licence is {said}, its exception in licences.toml is for another"
    if said is None:
        return f"{name}: says no licence that licences.toml knows"
    if not _allowed(said, rules["allowed"]):  # type: ignore[arg-type]
        return f"{name}: {said} is not allowed"
    return None


def expression(package: Distribution, meanings: dict[str, str]) -> str | None:
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
        given = metadata["License-Expression"]
    else:
        known = [meanings.get(each) for each in classified or [free]]
        given = " AND ".join(each for each in known if each) if all(known) else free
    try:
        parsed = SPDX.parse(given, validate=True)
    except ExpressionError:
        return None
    return None if parsed is None else str(parsed)


def _allowed(said: str, allowed: Sequence[str]) -> bool:
    return _holds(SPDX.parse(said), allowed)


def _holds(parsed: object, allowed: Sequence[str]) -> bool:
    if isinstance(parsed, SPDX.OR):
        return any(_holds(each, allowed) for each in parsed.args)
    if isinstance(parsed, SPDX.AND):
        return all(_holds(each, allowed) for each in parsed.args)
    return str(parsed) in allowed
