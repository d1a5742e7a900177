"""The pinned packages of `requirements/*.txt`."""

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from holdfast.deploy.release.version import ROOT

FOLDER = ROOT / "requirements"

_PIN = re.compile(r"^\w.*?==[^\\\n]*", re.MULTILINE)


def pins(file: Path) -> Iterator[tuple[str, str]]:
    """Yield name and version of each package of a file that this platform installs."""
    for line in _PIN.findall(file.read_text()):
        pin = Requirement(line)
        if pin.marker is None or pin.marker.evaluate():
            [only] = pin.specifier
            yield canonicalize_name(pin.name), only.version


def all_pins(folder: Path = FOLDER) -> set[tuple[str, str]]:
    """Return the pins of every file of a folder."""
    return {pin for file in folder.glob("*.txt") for pin in pins(file)}
