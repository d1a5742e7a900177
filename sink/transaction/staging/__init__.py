"""The staged path: Spark's tasks vote, and the driver's one transaction takes over their rows.

Each task copies its partition into a table of the batch, under the id of its attempt, and votes by
returning how many rows it put there (`task`). Spark hands the driver one vote a partition; those
attempts, and no other, are moved into the outbox by the one transaction (`content`).
"""
