"""Kafka for development and tests: pinned jars, and a broker in a process of its own."""
