"""Webhooks from Postgres: this dispatcher, plain HTTP clients, and other queues."""
