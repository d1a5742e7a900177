"""A JAVA_HOME around a runtime that lacks the module `jdk.incubator.vector`.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, and a runtime without it does
not start. Spark itself works without it. So the wrapper's `bin/java` removes this option and execs
the real program; everything else is a link into the runtime.

The launcher also names a jar of its folder, slf4j, before all the jars of that folder. The wrapper
removes this first mention, because Java 21 refuses an archive of classes (`-XX:SharedArchiveFile`)
where the class path has a jar twice.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.sink.contract.exits import CommandError

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
            return _made(base / name, home, script)
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


def _made(target: Path, home: Path, script: str) -> Path:
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
