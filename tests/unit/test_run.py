"""`make test` and `make test-rest` run every test between them, and say what failed."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import psutil
import pytest

from tests.run import NEW_SECONDS, UNIT_SECONDS, Room, busy_percent, files_of, units
from tests.support.servers.databases import PREPARED
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
FILES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").rglob("test_*.py"))]
SHORT, LONG = UNIT_SECONDS / 10, UNIT_SECONDS * 3

PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL);"  # ignored below nohup
    f" sys.path.insert(0, {str(ROOT)!r}); from tests import run;"
    " sys.exit(run.main(['test', 'rest'], record=False))"
)

CLAIM = "import pytest\n\n{0}\ndef test_claim() -> None:\n    assert {1}\n"

WAITING = """
from pathlib import Path
from threading import Event

import pytest

@pytest.fixture
def left() -> None:
    yield
    Path("ended").touch()

def test_waits(left: None) -> None:
    Path("began").touch()
    Event().wait(300)
"""


@contextmanager
def running(folder: Path, texts: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Write tests into a folder, and run both tiers of them."""
    for name, text in texts.items():
        file = folder / "tests" / name / "test_it.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", PREPARED: ""}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, stdout=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("recorded", [{}, dict.fromkeys(FILES, LONG), {FILES[0]: LONG}])
def test_every_file_is_in_one_unit(recorded: dict[str, float]) -> None:
    results = [unit for _, unit in units(FILES, recorded)]
    assert sorted(chain.from_iterable(results)) == FILES
    for unit in results:
        assert len({Path(file).parts[:2] for file in unit}) == 1
        assert list(unit) == sorted(unit)


def test_unit_is_about_as_long_as_it_may_be() -> None:
    files = [f"tests/a/test_{n:02}.py" for n in range(45)]
    results = list(units(files, dict.fromkeys(files, SHORT)))
    assert {len(unit) for _, unit in results} <= {10, 11, 12}
    assert sum(expected for expected, _ in results) == pytest.approx(45 * SHORT)


def test_file_that_was_never_measured_counts_a_little() -> None:
    files = ["tests/a/test_new.py", "tests/a/test_old.py"]
    assert list(units(files, {files[1]: 1.0})) == [(NEW_SECONDS + 1, files)]


def test_every_file_is_in_a_tier(tmp_path: Path) -> None:
    marks = {
        "test_whole.py": "pytestmark = pytest.mark.rest",
        "test_of_list.py": "pytestmark = [\n    pytest.mark.spark,\n    pytest.mark.rest,\n]",
        "test_partly.py": "@pytest.mark.rest\ndef test_claim() -> None: ...",
        "test_not.py": "pytestmark = [pytest.mark.spark]",
    }
    for name, text in marks.items():
        (tmp_path / name).write_text(text)
    tiers = [
        [Path(file).name for file in files_of(tier, tmp_path.iterdir())]
        for tier in ("test", "rest")
    ]
    assert tiers == [
        ["test_not.py", "test_partly.py"],
        ["test_of_list.py", "test_partly.py", "test_whole.py"],
    ]


def test_as_many_parts_begin_as_there_are_workers_and_no_more_than_may() -> None:
    assert [Room(2, 2).is_there(running) for running in range(4)] == [True, True, False, False]
    assert not Room(2, 8).is_there(2)  # it has not looked yet at what the processors do


def test_processors_that_wait_for_a_disk_are_idle() -> None:
    before = psutil.cpu_times()
    after = before._replace(user=before.user + 6, system=before.system + 1, idle=before.idle + 3)
    assert busy_percent(before, after) == pytest.approx(70)
    if hasattr(after, "iowait"):
        waits = after._replace(iowait=after.iowait + 4, guest=after.guest + 6)
        assert busy_percent(before, waits) == pytest.approx(50)
    assert busy_percent(before, before) == pytest.approx(100)


@pytest.mark.rest
def test_failure_is_in_the_code_and_in_the_output(tmp_path: Path) -> None:
    texts = {
        "good": CLAIM.format("", "1 < 2"),
        "bad": CLAIM.format("", "2 < 1"),
        "slow": CLAIM.format("@pytest.mark.rest", "4 < 3"),
    }
    with running(tmp_path, texts) as process:
        printed = process.communicate(timeout=120)[0].decode()
    assert process.returncode == 1
    assert "1 passed in" in printed
    assert printed.count("1 failed") == 2
    assert "assert 2 < 1" in printed
    assert "assert 4 < 3" in printed


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(n, marks=pytest.mark.rest) for n in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_interrupt_ends_the_tests_in_order(number: signal.Signals, tmp_path: Path) -> None:
    with running(tmp_path, {"waiting": WAITING}) as process:
        eventually((tmp_path / "began").exists)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        assert process.wait(60) != 0
    assert (tmp_path / "ended").exists()
    assert not any(child.is_running() for child in children)
