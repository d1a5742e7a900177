"""One outbound HTTP request: where it may go, what it carries, what its answer proves."""
