"""The jars that pyspark does not bring: Spark's Kafka connector, and a broker.

`make kafka-jars` stages them, by Maven or else by the Ivy in pyspark's own jars, which needs only
Java. Which jars, and their SHA-256, is in `connector.txt` and `broker.txt`.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import typer

from holdfast.deploy.local.java import find_java
from holdfast.sink.contract.exits import CommandError

STAGED = Path(".holdfast/kafka")
"""Where the jars are staged: `connector` and `broker` in it."""

KINDS = ("connector", "broker")

FETCH_SECONDS = 600

LINE_MAX = 300
"""Characters of the line that says why a download failed."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A jar by its Maven coordinates and its SHA-256."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def pins(kind: str) -> list[Pin]:
    """Return the jars of `connector` or `broker`, the one that needs the others first."""
    lines = Path(__file__).with_name(f"{kind}.txt").read_text(encoding="ascii").splitlines()
    read = []
    for coordinates, sha256 in (line.split() for line in lines if not line.startswith("#")):
        group, artifact, version = coordinates.split(":")
        read.append(Pin(group, artifact, version, sha256))
    return read


def problems(kind: str, folder: Path) -> list[str]:
    """Return what is wrong with the staged jars of a kind; empty if they are as pinned."""
    wrong = []
    for pin in pins(kind):
        try:
            content = (folder / pin.name).read_bytes()
        except OSError:
            wrong.append(f"{pin.name} is missing")
            continue
        if hashlib.sha256(content).hexdigest() != pin.sha256:
            wrong.append(f"{pin.name} has another SHA-256 than the pinned one")
    return wrong


def staged(kind: str, root: Path = STAGED) -> Path:
    """Return the folder of the staged jars of a kind.

    Raises `CommandError` if they are not there, or not as pinned.
    """
    folder = root / kind
    if wrong := problems(kind, folder):
        raise CommandError(
            f"the Kafka jars in {folder} cannot be used: {wrong[0]}. Nothing was started. Run"
            " `make kafka-jars`.",
            code="jars_missing",
        )
    return folder


def stage(kind: str, root: Path = STAGED) -> bool:
    """Stage the jars of a kind; returns False if they were there already.

    Raises `CommandError` if neither Maven nor Ivy can download them, or one differs from its pin.
    The folder is then as it was before.
    """
    target = root / kind
    if not problems(kind, target):
        return False
    root.mkdir(parents=True, exist_ok=True)
    reasons = []
    for name, fetch in (("Maven", _by_maven), ("Ivy", _by_ivy)):
        draft = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=root))
        try:
            if failure := fetch(pins(kind), draft):
                reasons.append(f"{name}: {failure}")
            elif wrong := problems(kind, draft):
                reasons.append(f"{name}: {wrong[0]}")
            else:
                draft.chmod(0o755)
                shutil.rmtree(target, ignore_errors=True)
                draft.rename(target)
                return True
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    raise CommandError(_impossible(kind, target, reasons), code="jars_unavailable")


def _impossible(kind: str, target: Path, reasons: Iterable[str]) -> str:
    first, *others = pins(kind)
    names = ", ".join(map(str, others)) if kind == "connector" else f"{len(others)} others"
    return (
        f"the Kafka jars of the {kind} could not be downloaded ({'; '.join(reasons)}). Nothing was"
        f" changed. Put {first} and {names} into {target} by hand: coordinates and SHA-256 are in"
        f" {Path(__file__).with_name(f'{kind}.txt')}."
    )


_Fetch = Callable[[list[Pin], Path], str | None]

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""

_POM_DEPENDENCY = (
    "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
    "<version>{version}</version><exclusions><exclusion><groupId>*</groupId>"
    "<artifactId>*</artifactId></exclusion></exclusions></dependency>"
)

_IVY = """\
<ivy-module version="2.0">
  <info organisation="holdfast" module="kafka-jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""

_IVY_DEPENDENCY = (
    '<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false"'
    ' conf="default->master"/>'
)


def _by_maven(jars: list[Pin], folder: Path) -> str | None:
    maven = shutil.which("mvn")
    if maven is None:
        return "there is no mvn on PATH"
    with tempfile.TemporaryDirectory(prefix="holdfast-maven-") as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_filled(_POM, _POM_DEPENDENCY, jars), encoding="ascii")
        goal = "dependency:copy-dependencies"
        return _failure([maven, "-B", "-q", "-f", str(pom), goal, f"-DoutputDirectory={folder}"])


def _by_ivy(jars: list[Pin], folder: Path) -> str | None:
    ivy = _ivy_jar()
    if ivy is None:
        return "pyspark is not installed"
    with tempfile.TemporaryDirectory(prefix="holdfast-ivy-") as work:
        module = Path(work) / "ivy.xml"
        module.write_text(_filled(_IVY, _IVY_DEPENDENCY, jars), encoding="ascii")
        java = str(find_java() / "bin" / "java")
        names = f"{folder}/[artifact]-[revision].jar"
        command = [java, f"-Divy.default.ivy.user.dir={work}", "-jar", str(ivy), "-ivy"]
        return _failure([*command, str(module), "-types", "jar", "bundle", "-retrieve", names])


def _ivy_jar() -> Path | None:
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    jars = Path(spec.submodule_search_locations[0]) / "jars"
    return next(iter(sorted(jars.glob("ivy-*.jar"))), None)


def _filled(document: str, dependency: str, jars: list[Pin]) -> str:
    parts = (
        dependency.format(group=pin.group, artifact=pin.artifact, version=pin.version)
        for pin in jars
    )
    return document.format(dependencies="".join(parts))


def _failure(command: list[str]) -> str | None:
    """Run a command; returns the line of its output that tells why it failed, or None."""
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {FETCH_SECONDS} s"
    except OSError as error:
        return f"{command[0]} cannot be run ({error.strerror})"
    if ended.returncode == 0:
        return None
    if "PKIX path building failed" in ended.stdout:
        return (
            f"{command[0]} does not trust the server's certificate, as behind a proxy with an"
            " authority of its own: name your truststore by"
            " JDK_JAVA_OPTIONS=-Djavax.net.ssl.trustStore=FILE"
        )
    lines = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
    errors = [line for line in lines if "[ERROR]" in line or "not found" in line] or lines
    return errors[0][:LINE_MAX] if errors else f"exit code {ended.returncode}"


def main() -> None:
    """Stage the named kinds, or both; exit code 1 and one sentence if they cannot be had."""
    for kind in sys.argv[1:] or KINDS:
        try:
            new = stage(kind)
        except CommandError as error:
            typer.echo(f"holdfast: {error}", err=True)
            sys.exit(error.exit_code)
        size = sum((STAGED / kind / pin.name).stat().st_size for pin in pins(kind))
        state = "staged" if new else "already staged"
        count = len(pins(kind))
        typer.echo(f"{STAGED / kind}: {count} jars, {size / 1_000_000:.0f} MB, {state}.")


if __name__ == "__main__":
    main()
