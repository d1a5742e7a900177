"""Wheel and sdist of a commit: the same bytes twice, whole, and installed outside the tree."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

from holdfast.deploy.local.postgres import EmbeddedPostgres
from holdfast.deploy.release import checkpoint_jar, version
from holdfast.deploy.release.environment import pack
from holdfast.deploy.release.version import ROOT

INSTALLED_FOLDERS = {
    "dispatcher/receiver/": "holdfast/receiver/",
    "sink/testing/": "holdfast/testing/",
    "docs/examples/": "holdfast/examples/",
    **{f"{name}/": f"holdfast/{name}/" for name in ("deploy", "dispatcher", "migrations")},
    **{f"{name}/": f"holdfast/{name}/" for name in ("sink", "spark_app")},
}
"""Where the wheel has the files of a folder: the first that fits."""

LEFT_OUT = (
    "dispatcher/receiver/snippets/",
    *(f"deploy/{name}/" for name in ("check", "kubernetes", "release", "runbook")),
)
"""Folders of which the wheel has nothing: tools, and what nobody reads at run time."""

DATA_ONLY = "deploy/grafana/"
"""A folder of which the wheel has no Python."""

_MADE = {"PKG-INFO", "setup.cfg"}
"""What setuptools adds to the sdist, beside its `egg-info`."""

INSTALLED = "api.txt"
"""Requirements that hold every command but the job's and the local ones."""

COMMANDS = ("--help", "db upgrade", "db doctor", "status", "dispatch --drain")
"""What the installed wheel runs on an empty Postgres; each ends with 0."""

SECONDS = 900


class PackageError(Exception):
    """Something does not build or run; says what it printed."""


def run(*command: str, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Return what a command printed. Raises `PackageError` unless it ends with 0."""
    environment = None if env is None else dict(env)
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    if done.returncode:
        words = " ".join(command)
        raise PackageError(f"{words} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def time_of_commit(root: Path) -> str:
    """Return when the last commit was made, in seconds since 1970: the time of every file."""
    return run("git", "log", "-1", "--format=%ct", cwd=root).strip()


def build(to: Path, work: Path, root: Path = ROOT) -> list[Path]:
    """Build the last commit twice, in folders and at times that differ; returns wheel and sdist.

    The wheel that the sdist gives is compared, too. Raises `PackageError` for other bytes.
    """
    time = time_of_commit(root)
    first = _build(root, work / "one", work / "first", time)
    second = _build(root, work / "another" / "place", work / "second", time)
    (sdist,) = (path for path in first if path.name.endswith(".tar.gz"))
    (folder,) = _unpack(sdist, work / "unpacked")
    again = _built(folder, work / "third", time, "wheel")
    for ours, other in [
        *zip(first, second, strict=True),
        *((path, each) for each in again for path in first if path.name == each.name),
    ]:
        if ours.read_bytes() != other.read_bytes():
            raise PackageError(f"{ours.name}: built twice, its bytes differ: {ours}, {other}")
    to.mkdir(parents=True, exist_ok=True)
    return [path.replace(to / path.name) for path in first]


def _build(root: Path, source: Path, to: Path, time: str) -> list[Path]:
    source.mkdir(parents=True)
    archive = source.with_suffix(".tar")
    run("git", "archive", "--output", str(archive), "HEAD", cwd=root)
    _unpack(archive, source)
    return _built(source, to, time, "sdist", "wheel")


def _built(source: Path, to: Path, time: str, *targets: str) -> list[Path]:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": time}
    # setuptools keeps the modes of files in a wheel.
    script = 'umask 0022 && chmod --recursive u=rwX,go=rX . && exec "$@"'
    to.mkdir(parents=True)
    for target in targets:
        calls = f"from setuptools import build_meta; build_meta.build_{target}({str(to)!r})"
        run("sh", "-c", script, "sh", sys.executable, "-c", calls, cwd=source, env=environment)
    for sdist in to.glob("*.tar.gz"):
        # setuptools keeps the times and owners of the files in it.
        folder = to / "unpacked"
        _unpack(sdist, folder)
        pack(folder, sdist)
        shutil.rmtree(folder)
    return sorted(to.iterdir())


def _unpack(archive: Path, to: Path) -> list[Path]:
    # Not by tarfile: the filter that makes it safe came with Python 3.11.4.
    to.mkdir(parents=True, exist_ok=True)
    run(*("tar", "--extract", "--no-same-owner", "--file", str(archive)), cwd=to)
    return list(to.iterdir())


def faults(wheel: Path, sdist: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield what the archives lack or have too much, against the files of the last commit."""
    tracked = set(run("git", "ls-tree", "-r", "--name-only", "HEAD", cwd=root).splitlines())
    if str(checkpoint_jar.SOURCES[0]) in tracked:
        tracked.add(str(checkpoint_jar.JAR))
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    yield from _differences("wheel", names, set(_installed(tracked)))
    with tarfile.open(sdist) as packed:
        inside = {each.name.partition("/")[2] for each in packed if each.isfile()}
    generated = {name for name in inside if name in _MADE or ".egg-info/" in name}
    yield from _differences("sdist", inside - generated, tracked)


def _installed(tracked: Iterable[str]) -> Iterator[str]:
    for name in tracked:
        for folder, package in INSTALLED_FOLDERS.items():
            tool = name.startswith(DATA_ONLY) and name.endswith(".py")
            if name.startswith(folder) and not (tool or name.startswith(LEFT_OUT)):
                yield name.replace(folder, package, 1)
                break


def _differences(what: str, present: set[str], expected: set[str]) -> Iterator[str]:
    yield from (f"{what}: {name} is missing" for name in sorted(expected - present))
    yield from (f"{what}: {name} is too much" for name in sorted(present - expected))


def try_out(wheel: Path, work: Path, root: Path = ROOT) -> list[str]:
    """Install a wheel with hashed requirements and use it, outside the tree; returns what was done.

    A real Postgres gets the schema. Raises `PackageError`.
    """
    venv = work / "venv"
    run(sys.executable, "-m", "venv", str(venv), cwd=work)
    pip = (str(venv / "bin" / "pip"), "--quiet", "--disable-pip-version-check")
    hashed = ("--require-hashes", "--requirement", str(root / "requirements" / INSTALLED))
    run(*pip, "install", *hashed, cwd=work)
    run(*pip, "install", "--no-deps", str(wheel), cwd=work)
    run(*pip, "check", cwd=work)
    holdfast = str(venv / "bin" / "holdfast")
    with EmbeddedPostgres(work / "postgres", keep=False) as server:
        env = {"PATH": os.environ["PATH"], "HOME": str(work), "HOLDFAST_DSN": server.dsn}
        printed = run(holdfast, "--version", cwd=work, env=env).strip()
        if printed != f"holdfast {version.current(root)}":
            raise PackageError(f"holdfast --version says {printed!r}")
        for command in COMMANDS:
            run(holdfast, *command.split(), cwd=work, env=env)
    return [f"{printed} installed outside the tree: {', '.join(COMMANDS)}"]
