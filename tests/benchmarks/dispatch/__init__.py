"""Webhooks out of Postgres: this dispatcher, bare HTTP clients, and other people's queues."""
