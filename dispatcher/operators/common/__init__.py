"""What the verbs share: the session with its audit trail, the pool, persons, paging and text."""
