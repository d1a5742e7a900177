"""`make test` runs every test, and none of them twice."""

from pathlib import Path

from tests.run import PARTS, ignored, left_out

ROOT = Path(__file__).parents[2]
FILES = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]


def _runs(part: tuple[str, ...], file: Path) -> bool:
    return any(map(file.is_relative_to, part)) and not any(
        map(file.is_relative_to, ignored(part, PARTS))
    )


def test_every_file_is_in_one_part() -> None:
    assert left_out(FILES, PARTS) == []
    assert {sum(_runs(part, file) for part in PARTS) for file in FILES} == {1}


def test_what_is_named_is_there() -> None:
    assert [path for part in PARTS for path in part if not (ROOT / path).exists()] == []


def test_file_in_no_part_is_told() -> None:
    files = [Path("tests/unit/test_a.py"), Path("tests/new/test_b.py")]
    assert left_out(files, (("tests/unit",),)) == ["tests/new/test_b.py"]
