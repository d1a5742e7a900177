"""The receiver kit on the oldest and the newest Python, with the lowest and the highest libraries.

Real: an environment with the wheel alone, the receiver of the example as a process of its Python,
Postgres, and the conformance kit that grades it. `make test-versions` runs it; not part of `make
test`.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.deploy.local.ports import free_port
from tests.soak.sink_connect import answers
from tests.support.command import holdfast
from tests.support.dispatch.sender import secret_text
from tests.support.job.environments import FOLDER, ROOT, UV, build_wheel, declared
from tests.support.waiting import eventually

SECRET = "HOLDFAST_SECRET_ORDERS"
DATA = {"order_id": "{subject}", "policy_version": "v1"}


@contextmanager
def receiver(python: Path, folder: Path, dsn: str) -> Iterator[str]:
    """Run the example's receiver until the block ends; its URL."""
    port = free_port()
    shutil.copy(ROOT / "docs" / "examples" / "order_review" / "receiver.py", folder)
    with (folder / "receiver.txt").open("wb") as log:
        process = subprocess.Popen(
            [str(python), "-m", "uvicorn", "receiver:app", "--port", str(port)],
            cwd=folder,
            env={**os.environ, "ORDERS_DSN": dsn, SECRET: secret_text()},
            stdout=log,
            stderr=log,
        )
    try:
        eventually(lambda: answers(port), seconds=60)
        yield f"http://127.0.0.1:{port}/webhooks"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("version", "resolution"), [("3.10", "lowest-direct"), ("3.13", "highest")]
)
def test_receiver_conforms_on_other_pythons(
    version: str,
    resolution: str,
    make_database: Callable[[str | None], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if subprocess.run([f"python{version}", "-V"], capture_output=True, check=False).returncode:
        pytest.skip(f"python{version} is not installed")
    home = FOLDER / f"receiver-{version}"
    python = home / "bin" / "python"
    subprocess.run([*UV, "venv", "--clear", "--python", version, str(home)], check=True)
    install = [*UV, "pip", "install", "--python", str(home)]
    required = [*declared("receiver-fastapi"), "uvicorn>=0.34"]
    subprocess.run([*install, "--resolution", resolution, *required], check=True)
    wheel = build_wheel(tmp_path / "wheel")
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)

    (tmp_path / "data.json").write_text(json.dumps(DATA))
    monkeypatch.setenv(SECRET, secret_text())
    with receiver(python, tmp_path, make_database(None)) as url:
        graded = holdfast(
            *("conform", url, "--secret-ref", f"env:{SECRET}", "--type", "order_review.hold"),
            *("--data", str(tmp_path / "data.json"), "--json"),
        )
    report = json.loads(graded.stdout)
    assert graded.returncode == 0, report
