"""The job's own files in a checkpoint, and what it reads of Spark's."""
