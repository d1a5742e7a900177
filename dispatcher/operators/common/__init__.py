"""What the verbs share: the session with its audit trail, persons, keys and words."""
