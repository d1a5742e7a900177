"""The exposure operator against alternatives in Spark, and the cost of its checkpoint."""
