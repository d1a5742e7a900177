"""What the job keeps inside a checkpoint, beside Spark's own files."""
