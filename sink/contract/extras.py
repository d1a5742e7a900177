"""Names the extra to install where a package is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(what: str, extra: str, *packages: str) -> Iterator[None]:
    """Name `extra` in the error of an import inside the block that misses one of its packages."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise
        raise ModuleNotFoundError(
            f"{what} needs the package {package}, which is not installed: install the extra"
            f" `{extra}`, by pip install '/path/to/holdfast[{extra}]' (a clone or a wheel).",
            name=error.name,
        ) from error
