"""The steps of a release. One that fails does not stop the others."""

import argparse
import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.deploy.release import packages, pages, requirements, signing, version, vulnerabilities
from holdfast.deploy.release.environment import pack
from holdfast.deploy.release.packages import PackageError, run
from holdfast.deploy.release.report import Report
from holdfast.deploy.release.requirements import FOLDER, all_pins, pins
from holdfast.deploy.release.version import ROOT
from holdfast.sink.contract.exits import CommandError

Step = Callable[[argparse.Namespace], Report]

RELEASE = ROOT / "dist" / "release"

TOOLS = ROOT / ".holdfast" / "release"
"""The environment with twine and pip-audit; `make` makes it."""

MUTANTS = ROOT / ".holdfast" / "mutants"
"""The environment with mutmut; `make` makes it."""

IMAGES = ("migrate", "dispatcher", "api", "job")

PLANTED = b"planted"


def check_version(options: argparse.Namespace) -> Report:
    """Compare every file that repeats the version; with a key the changelog needs a date."""
    return Report(list(version.faults(dated=options.key is not None)), notes=[version.current()])


def check_licences(_: argparse.Namespace) -> Report:
    """Compare the licence of every dependency with licences.toml."""
    others = (
        folder
        for venv in (pages.WORK, TOOLS, MUTANTS)
        for folder in venv.glob("lib/*/site-packages")
    )
    return requirements.check_licences([Path(sysconfig.get_paths()["purelib"]), *others])


def check_vulnerabilities(options: argparse.Namespace) -> Report:
    """Look for known vulnerabilities: with --osv in a copy of OSV, else by pip-audit."""
    if options.osv is not None:
        return vulnerabilities.look_up(options.osv, all_pins())
    return vulnerabilities.ask(TOOLS / "bin" / "pip-audit", all_pins())


def build_packages(options: argparse.Namespace) -> Report:
    """Build wheel and sdist of the last commit, check them and try the wheel out."""
    report = Report()
    if run("git", "status", "--porcelain", cwd=ROOT):
        report.left_out.append("the tree has changes that are not committed: they are not in")
    with TemporaryDirectory(prefix="holdfast-release-") as folder:
        work = Path(folder)
        work.chmod(0o755)  # the server may have an account of its own
        built = packages.build(options.to, work)
        sdist, wheel = sorted(built, key=lambda path: path.suffix != ".gz")
        report.faults += packages.faults(wheel, sdist)
        run(str(TOOLS / "bin" / "twine"), "check", "--strict", *map(str, built), cwd=work)
        report.notes += packages.try_out(wheel, work)
    return report


def write_bills(options: argparse.Namespace) -> Report:
    """Write the bills of materials, and compare them with version and requirements."""
    _make("sbom")
    report = Report()
    for image in IMAGES:
        file = ROOT / "dist" / f"sbom-{image}.json"
        bill = json.loads(file.read_text())
        if bill["metadata"]["component"].get("version") != version.current():
            report.faults.append(f"{file.name}: not of version {version.current()}")
        listed = {(each["name"].lower(), each["version"]) for each in bill["components"]}
        if missing := set(pins(FOLDER / f"{image}.txt")) - listed:
            report.faults.append(f"{file.name}: lacks {sorted(missing)}")
        shutil.copy(file, options.to)
        report.notes.append(f"{file.name}: {len(listed)} packages")
    return report


def build_documents(options: argparse.Namespace) -> Report:
    """Build the site of the documents, which checks its links, and look at it in a browser."""
    output = _make("docs-check")
    report = Report(notes=[output.strip().splitlines()[-1]])
    if " skipped" in output:
        report.left_out.append("chromium or npm is not here: pages or diagrams were not seen")
    pack(pages.WORK / "site", options.to / f"holdfast-docs-{version.current()}.tar.gz")
    return report


def build_images(options: argparse.Namespace) -> Report:
    """Build the images and run them."""
    try:
        run(options.containers, "info", cwd=ROOT)
    except (OSError, PackageError):
        return Report(left_out=[f"no {options.containers} answers: no image was built or run"])
    output = _make("test-images", f"CONTAINERS={options.containers}")
    return Report(notes=[output.strip().splitlines()[-1]])


def write_sums(options: argparse.Namespace) -> Report:
    """Write SHA256SUMS and sign it; a rehearsal with a thrown-away key refuses what it must."""
    signing.write_sums(options.to)
    report = Report(
        notes=[f"{path.name}: {path.stat().st_size:,} B" for path in _files(options.to)]
    )
    with TemporaryDirectory() as folder:
        report.faults += rehearse(options.to, Path(folder))
    if options.key is None:
        report.notes.append("not signed: no --key")
    else:
        signing.sign(options.to, options.key)
        report.faults += signing.faults(options.to, options.allowed)
    return report


def rehearse(artifacts: Path, work: Path) -> list[str]:
    """Sign a copy of a folder and spoil it in each way; returns what was not noticed."""
    copy = shutil.copytree(artifacts, work / "copy")
    allowed = signing.make_key(work / "key")
    other = signing.make_key(work / "other")
    signing.sign(copy, work / "key")
    faults = list(signing.faults(copy, allowed))
    if not list(signing.faults(copy, other)):
        faults.append("a signature of another key passed")
    for path in _files(copy):
        kept = path.read_bytes()
        path.write_bytes(kept + PLANTED)
        if not list(signing.faults(copy, allowed)):
            faults.append(f"a change of {path.name} passed")
        path.write_bytes(kept)
    return faults


def verify_signature(options: argparse.Namespace) -> Report:
    """Verify the signature and every file of a folder."""
    return Report(list(signing.faults(options.to, options.allowed)), notes=[str(options.to)])


def build_site(_: argparse.Namespace) -> Report:
    """Build the site of the documents."""
    drawn = pages.build(pages.WORK / "site")
    left = [] if drawn else ["npm is not here: diagrams are shown as text"]
    return Report(left_out=left, notes=[str(pages.WORK / "site")])


CHECK: dict[str, Step] = {
    "version": check_version,
    "licences": check_licences,
    "vulnerabilities": check_vulnerabilities,
    "packages": build_packages,
    "bills": write_bills,
    "documents": build_documents,
    "images": build_images,
    "sums": write_sums,
}
"""In the order of `make release-check`."""

SINGLE: dict[str, Step] = {**CHECK, "verify": verify_signature, "site": build_site}


def safely(step: Step, options: argparse.Namespace) -> Report:
    """Run a step; what keeps it from its end is a fault."""
    try:
        return step(options)
    except (
        CommandError,
        OSError,
        PackageError,
        ValueError,
        pages.SiteError,
        signing.SigningError,
        subprocess.TimeoutExpired,
    ) as error:
        return Report([str(error)])


def _make(*words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    environment["SOURCE_DATE_EPOCH"] = packages.time_of_commit(ROOT)
    return run("make", "--no-print-directory", *words, cwd=ROOT, env=environment)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != signing.SIGNATURE)
