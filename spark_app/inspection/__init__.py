"""The job's state of one merchant, read from a checkpoint: `holdfast job inspect`."""
