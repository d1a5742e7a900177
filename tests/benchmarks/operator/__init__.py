"""The exposure operator beside what Spark users write, and what its checkpoint costs."""
