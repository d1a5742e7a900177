"""`make test` runs every test, none of them twice, and says what failed."""

import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import psutil
import pytest

from tests.run import NEW_SECONDS, UNIT_SECONDS, Unit, run_all, table, units
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
FILES = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
SHORT, LONG = UNIT_SECONDS / 10, UNIT_SECONDS * 3


@pytest.mark.parametrize("recorded", [{}, dict.fromkeys(FILES, LONG), {FILES[0]: LONG}])
def test_every_file_is_in_one_unit(recorded: dict[str, float]) -> None:
    found = list(chain.from_iterable(unit.files for unit in units(FILES, recorded)))
    assert sorted(found) == sorted(FILES)


def test_unit_is_of_one_folder_and_has_its_files_in_order() -> None:
    for unit in units(FILES, {}):
        assert len({Path(file).parts[:2] for file in unit.files}) == 1
        assert list(unit.files) == sorted(unit.files)


def test_longest_unit_begins_first() -> None:
    files = [f"tests/{folder}/test_{n}.py" for folder in "abc" for n in range(20)]
    expected = [unit.expected for unit in units(files, {files[33]: LONG, files[7]: LONG / 2})]
    assert expected == sorted(expected, reverse=True)
    assert expected[0] >= LONG


def test_unit_is_about_as_long_as_it_may_be() -> None:
    files = [f"tests/a/test_{n:02}.py" for n in range(45)]
    found = units(files, dict.fromkeys(files, SHORT))
    assert {len(unit.files) for unit in found} <= {10, 11, 12}
    assert sum(unit.expected for unit in found) == pytest.approx(45 * SHORT)


def test_file_that_was_never_measured_counts_a_little_and_one_that_was_moved_as_before() -> None:
    recorded = {"tests/a/test_old.py": 1.0, "tests/b/test_moved.py": 4.0}
    files = ["tests/a/test_new.py", "tests/a/test_old.py", "tests/a/room/test_moved.py"]
    (unit,) = units(files, recorded)
    assert unit.expected == NEW_SECONDS + 1 + 4


def test_every_folder_has_its_line() -> None:
    lines = table({"tests/a/test_1.py": 1, "tests/a/test_2.py": 2, "tests/b/test_1.py": 4})
    assert [line.split() for line in lines.splitlines()] == [
        ["4", "s", "1", "files", "tests/b"],
        ["3", "s", "2", "files", "tests/a"],
        ["7", "s", "3", "files", "together"],
    ]


def test_failure_is_in_the_code_and_in_the_output(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    good, bad = tmp_path / "good" / "test_it.py", tmp_path / "bad" / "test_it.py"
    for file, fact in (good, "1 < 2"), (bad, "2 < 1"):
        file.parent.mkdir()
        file.write_text(f"def test_fact() -> None:\n    assert {fact}\n")
    work = [Unit((str(file),), 1) for file in (good, bad)]
    codes = {unit.unit: unit.code for unit in run_all(work, 2)}
    said = capfdbinary.readouterr().out.decode()
    assert codes == {work[0]: 0, work[1]: 1}
    assert "1 passed in" in said
    assert "1 failed in" in said
    assert "assert 2 < 1" in said


WAITING = """
from pathlib import Path
from threading import Event

import pytest

@pytest.fixture
def left() -> None:
    Path("{0}/began").touch()
    yield
    Path("{0}/ended").touch()

def test_waits(left: None) -> None:
    Event().wait(300)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_ends_the_tests_in_order(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(WAITING.format(tmp_path))
    program = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL);"  # ignored below nohup
        f" sys.path.insert(0, {str(ROOT)!r}); from tests import run; run.main([])"
    )
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:
        try:
            eventually((tmp_path / "began").exists)
            children = psutil.Process(running.pid).children(recursive=True)
            running.send_signal(number)
            assert running.wait(60) != 0
        finally:
            running.kill()
    assert (tmp_path / "ended").exists()
    assert not any(child.is_running() for child in children)
