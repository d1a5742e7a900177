"""A diverged replay that a person accepted: the ledger row under which the sink writes it."""

from uuid import UUID, uuid5


def accepted_query_id(query_id: UUID, digest: bytes) -> UUID:
    """Return the query id of what an accepted replay adds to a batch of `query_id`.

    The batch has a row under its own, so the replay's row has the same stream and batch id, and
    this query id: one for each digest. That row is what says that the replay is written.

    >>> accepted_query_id(UUID(int=1), bytes(32)).version
    5
    """
    return uuid5(query_id, digest.hex())
