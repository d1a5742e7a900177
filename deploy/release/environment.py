"""`make package`: a wheel, and an environment of Python packages that Spark unpacks on executors.

The environment is a virtual one with what the job needs, without PySpark, which comes from Spark.
It has no path of its own in it, so it works wherever it is unpacked; its interpreter is a link to
the one that machines have at the named path. The same files, lock file and interpreter give the
same bytes.
"""

import argparse
import gzip
import hashlib
import platform
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.deploy.release.version import ROOT

REQUIREMENTS = ROOT / "requirements" / "cluster.txt"

_LATEST = 1_580_601_600
"""2020-02-02, as in the wheel: the time of every file."""

_OF_THE_MACHINE = "direct_url.json"
"""What an installation writes about where it was made."""

# Without compiled modules each start of Python would compile all of them: Spark gives it ten
# seconds. By the hash of their sources, unchecked, they depend neither on time nor on a directory.
_COMPILE = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")


def build(to: Path, python: Path) -> tuple[Path, Path]:
    """Make both in the directory `to`; `python` is the interpreter of the executors.

    Raises `subprocess.CalledProcessError` where pip fails; it has said why.
    """
    to.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        target = Path(folder)
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(target))
        _run(*pip, "wheel", *options, str(ROOT))
        (wheel,) = target.glob("*.whl")
        environment = target / "environment"
        _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
        install = (*pip, "--python", str(environment / "bin" / "python"), "install", "--no-compile")
        _run(*install, "--require-hashes", "--requirement", str(REQUIREMENTS))
        _run(*install, "--no-deps", str(wheel))
        _make_movable(environment, python)
        kept = wheel.replace(to / wheel.name)
        version = ".".join(platform.python_version_tuple()[:2])
        name = f"{wheel.name.rpartition('-py3')[0]}-python{version}-{platform.machine()}.tar.gz"
        pack(environment, to / name)
    return kept, to / name


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _make_movable(environment: Path, python: Path) -> None:
    """Leave nothing in the environment that names its directory."""
    programs = environment / "bin"
    for program in programs.iterdir():
        program.unlink()
    (programs / "python").symlink_to(python)
    (programs / "python3").symlink_to("python")
    version = platform.python_version()
    (environment / "pyvenv.cfg").write_text(
        f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    for record in environment.rglob("*.dist-info/RECORD"):
        # The scripts of bin/ begin with the path of their interpreter: they are left out.
        lines = record.read_text().splitlines(keepends=True)
        gone = ("../../../bin/", f"{record.parent.name}/{_OF_THE_MACHINE}")
        record.write_text("".join(line for line in lines if not line.startswith(gone)))
    subprocess.run((sys.executable, *_COMPILE, "lib"), cwd=environment, check=True)


def pack(environment: Path, to: Path) -> None:
    """Write the files of a folder as a tar whose bytes depend on nothing else."""
    with (
        to.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in _files(environment):
            entry = archive.gettarinfo(path, str(path.relative_to(environment)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = _LATEST
            entry.mode = 0o755 if entry.mode & 0o100 else 0o644
            if entry.isreg():
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)


def _files(environment: Path) -> Iterator[Path]:
    for path in sorted(environment.rglob("*")):
        if not path.is_dir() and path.name != _OF_THE_MACHINE:
            yield path


def main() -> None:
    """Build both and say their sizes and digests."""
    parser = argparse.ArgumentParser(description="Build the wheel and the executors' environment.")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="a directory")
    parser.add_argument(
        "--python",
        type=Path,
        default=Path(sys.base_prefix) / "bin" / Path(sys.executable).resolve().name,
        help="the interpreter on the executors' machines, of the version that runs this",
    )
    options = parser.parse_args()
    for path in build(options.to, options.python):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB  sha256:{digest}")  # noqa: T201 - what it was asked for


if __name__ == "__main__":
    main()
