"""The job on a standalone cluster, and what its driver needs."""
