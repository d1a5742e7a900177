"""The response time of every page, API read and list on an outbox with a busy day."""
