"""The staged path: a two-phase commit between Spark's tasks and the driver's transaction.

Each task copies its partition into a table of the batch, under the id of its attempt, and votes by
returning how many rows it put there (`task`). Spark hands the driver one vote a partition; those
attempts, and no other, are moved into the outbox by the one transaction (`content`).
"""
