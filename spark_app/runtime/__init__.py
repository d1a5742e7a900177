"""Spark, its JVM and its settings."""
