"""Environments in which people run the sink: a version of Spark, of Python, and of what both need.

Each gets the wheel of this tree and nothing else of it. `lowest` has the lowest version of every
dependency that the wheel permits, and Spark with it; otherwise the highest.
"""

import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".holdfast" / "sink-environments"

SOURCES = ("sink", "dispatcher", "docs/examples", "migrations", "spark_app", "deploy")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")

UV = (str(Path(sys.executable).with_name("uv")), "--quiet")

NEEDED = {
    "3.5.9": ("numpy<2", "pandas>=1.5.3,<2.3", "pyarrow<20"),
    "4.0.5": ("pandas>=2.0.3,<3",),
    "4.1.4": ("pandas>=2.2,<3", "pyarrow>=15"),
    "4.2.1": ("pandas>=2.2,<3", "pyarrow>=18"),
    "4.3.0": ("pandas>=2.2,<3", "pyarrow>=18"),
}
"""What each version of Spark needs, beside what the wheel needs."""


class Versions(NamedTuple):
    """What is installed in an environment."""

    spark: str
    python: str
    pyarrow: str
    numpy: str
    pandas: str
    psycopg: str


@dataclass(frozen=True)
class Environment:
    """A version of Spark on a Python, with the lowest or the highest of everything else."""

    spark: str
    python: str
    lowest: bool
    has_connect: bool = False

    def __str__(self) -> str:
        connect = "-connect" if self.has_connect else ""
        return f"{self.spark}-{'lowest' if self.lowest else 'highest'}{connect}"

    @property
    def interpreter(self) -> str:
        """The absolute path of its Python."""
        return str(FOLDER / str(self) / "bin" / "python")

    def make(self, wheel: Path) -> None:
        """Make the environment again. Raises `LookupError` where this Python is not installed."""
        folder = FOLDER / str(self)
        asked = subprocess.run(
            [f"python{self.python}", "-c", "import sys; print(sys.executable)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode:
            raise LookupError(f"python{self.python} is not installed")
        subprocess.run(
            [*UV, "venv", "--clear", "--python", asked.stdout.strip(), str(folder)], check=True
        )
        install = [*UV, "pip", "install", "--python", str(folder)]
        resolution = "lowest-direct" if self.lowest else "highest"
        pyspark = "pyspark[connect]" if self.has_connect else "pyspark"
        required = [*declared(), *NEEDED[self.spark], f"{pyspark}=={self.spark}"]
        subprocess.run([*install, "--resolution", resolution, *required], check=True)
        subprocess.run([*install, "--no-deps", str(wheel)], check=True)

    def versions(self) -> Versions:
        """Return what is installed, as the environment tells it."""
        program = (
            "import platform; from importlib.metadata import version as v; print(v('pyspark'),"
            " platform.python_version(), v('pyarrow'), v('numpy'), v('pandas'), v('psycopg'))"
        )
        done = subprocess.run(
            [self.interpreter, "-c", program], capture_output=True, text=True, check=True
        )
        return Versions(*done.stdout.split())


ENVIRONMENTS = [
    Environment("3.5.9", "3.10", lowest=True),
    Environment("3.5.9", "3.11", lowest=False),
    Environment("4.0.5", "3.10", lowest=True),
    Environment("4.0.5", "3.13", lowest=False),
    Environment("4.1.4", "3.10", lowest=True),
    Environment("4.1.4", "3.13", lowest=False),
    Environment("4.2.1", "3.10", lowest=True),
    Environment("4.2.1", "3.13", lowest=False),
    Environment("4.3.0", "3.11", lowest=True),
    Environment("4.3.0", "3.13", lowest=False),
]

CONNECTED = [
    Environment(spark, "3.11", lowest=False, has_connect=True)
    for spark in ("4.1.4", "4.2.1", "4.3.0")
]
"""With Spark Connect, which is a package of its own before."""


def declared(extra: str = "sink") -> list[str]:
    """Return what an extra of Holdfast requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"]]
    for each in project["optional-dependencies"][extra]:
        own = each.startswith("holdfast[")
        required += declared(each[len("holdfast[") : -1]) if own else [each]
    return required


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this tree in a folder, from a copy: a build leaves files in the tree."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / "tree" / name, ignore=shutil.ignore_patterns("*.pyc"))
    for name in FILES:
        shutil.copy(ROOT / name, folder / "tree")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    subprocess.run([*pip, "wheel", *options, str(folder / "tree")], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel
