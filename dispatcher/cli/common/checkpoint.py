"""A checkpoint as an operator's command can see it: the query id that Spark keeps in it."""

import json
from uuid import UUID

from sink.contract.checkpoint import local_folder


def query_id_in(checkpoint: str | None) -> UUID | None:
    """Return the query id of a checkpoint; None where none can be read on this machine.

    >>> query_id_in("s3a://bucket/checkpoints") is None
    True
    """
    folder = local_folder(checkpoint)
    if folder is None:
        return None
    try:
        return UUID(json.loads((folder / "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
