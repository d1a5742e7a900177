"""What is refused before Spark starts, in one line, and how fast the words alone are read."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import holdfast

MISTAKES = {
    "not a checkpoint": ([], "is not a checkpoint of the exposure job"),
    "no checkpoint": (["--checkpoint", ""], "--checkpoint '' names no directory"),
    "no merchant": (["--merchant", ""], "--merchant is not the id of a merchant"),
    "a merchant with a line break": (["--merchant", "m\n1"], "none below U+0020"),
    "a batch and two": (["--batch", "1", "--diff", "1", "2"], "--batch shows one"),
    "the later batch first": (["--diff", "3", "2"], "try --diff 2 3"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_a_usage_error(mistake: str, tmp_path: Path) -> None:
    options, said = MISTAKES[mistake]
    question = ["--checkpoint", str(tmp_path), "--merchant", "m_482", *options]
    done = holdfast("job", "inspect", *question, process=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_command_is_known_without_spark_and_arrow() -> None:
    loaded = "import sys, holdfast.spark_app.inspection.cli; print('pyspark' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded + "; print('pyarrow' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]


JAVAS = {
    "none": (None, "does not run"),
    "too old": ("echo 'version \"1.8.0\"' >&2", "at least 25.0.3"),
    "without memory": (
        'echo \'version "17.0.1"\' >&2; [ "$1" = -version ] || { echo no heap >&2; exit 1; }',
        'Spark did not start: version "17.0.1" no heap',
    ),
}
"""What `java` does, as a script, and what is said of it."""


@pytest.mark.rest
@pytest.mark.parametrize("java", JAVAS)
def test_a_java_that_cannot_be_used_is_one_line(java: str, tmp_path: Path) -> None:
    script, said = JAVAS[java]
    (tmp_path / "holdfast.json").write_text("{}")
    if script is not None:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
    done = holdfast(
        *("job", "inspect", "--checkpoint", str(tmp_path), "--merchant", "m_482"),
        environment={"JAVA_HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert "holdfast local env" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
