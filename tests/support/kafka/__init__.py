"""A real Kafka broker for tests; `fixtures` is for pytest, `server` is what the fixtures give."""
