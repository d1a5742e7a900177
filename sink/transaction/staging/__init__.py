"""The staged path: Spark's tasks stage the rows, and the driver's one transaction moves them.

Each task copies its partition into a table of the batch, under the id of its attempt, and returns a
summary with the number of its rows (`task`). Spark gives the driver one summary per partition. The
transaction moves the rows of exactly those attempts into the outbox (`content`).
"""
