"""The exposure step: a pure function from state, rows and watermark to state and output.

Needs pyarrow and numpy only. It never reads a clock, a file or a random number, and does not import
Spark: the streaming operator calls it with one key group at a time (docs/spark/exposure-step.md).
"""
