"""The peers, installed where they are needed: nothing of them is a dependency of this project.

Python peers go into a virtual environment under `.holdfast/bench/venv`, Node's into
`.holdfast/bench/node`, together with a Node that is new enough for them. Both stay for the next
run. Which registry they come from is for pip and npm to know.
"""

import json
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

from tests.benchmarks.common.trees import Missing

HERE: Final = Path(__file__).parent / "peers"
FOLDER: Final = Path(".holdfast/bench").absolute()
REQUIREMENTS: Final = HERE / "requirements.txt"

NODE_PACKAGES: Final = {
    "graphile-worker": "0.18.0",
    # The newest whose dependencies can all be had; later ones name a package that is not there yet.
    "pg-boss": "12.35.0",
    "pg": "8.23.1",
    "undici": "8.12.4",
}
NODE_VERSION: Final = "24.21.0"
"""As a package: pg-boss, graphile-worker and undici want a newer Node than many systems have."""

_ARCHITECTURES: Final = {"x86_64": "x64", "aarch64": "arm64"}


@cache
def python() -> Path:
    """Return the interpreter of the peers' virtual environment, which is made where it is missing.

    Raises `Missing` with pip's last words.
    """
    interpreter, stamp = FOLDER / "venv/bin/python", FOLDER / "venv/.installed"
    requirements = REQUIREMENTS.read_text()
    if not stamp.exists() or stamp.read_text() != requirements:
        _run([sys.executable, "-m", "venv", str(FOLDER / "venv")], "the peers' environment")
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
        _run(pip, "the Python peers")
        stamp.write_text(requirements)
    return interpreter


@cache
def node() -> tuple[Path, Path]:
    """Return a Node with the peers' packages and the folder of their programs; as `python`."""
    folder = FOLDER / "node"
    runtime = f"node-{platform.system().lower()}-{_ARCHITECTURES.get(platform.machine(), '')}"
    packages = [f"{name}@{number}" for name, number in NODE_PACKAGES.items()]
    content = json.dumps([*packages, f"{runtime}@{NODE_VERSION}"])
    stamp, node = folder / "installed.json", folder / "node_modules" / runtime / "bin/node"
    if not stamp.exists() or stamp.read_text() != content:
        npm = shutil.which("npm")
        if npm is None:
            raise Missing("npm is not here")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        options = ("--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
        _run([npm, "install", *options, *json.loads(content)], "the Node peers", folder)
        stamp.write_text(content)
    for program in HERE.glob("*.mjs"):
        # Node looks for packages beside the program.
        shutil.copy(program, folder / program.name)
    return node, folder


def versions() -> dict[str, str]:
    """Of the peers, as they are asked for."""
    pinned = (line.split("==") for line in REQUIREMENTS.read_text().splitlines() if "==" in line)
    return dict(pinned) | NODE_PACKAGES | {"node": NODE_VERSION}


def _run(words: list[str], what: str, folder: Path | None = None) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise Missing(f"{what} cannot be installed: {lines[-1]}")
