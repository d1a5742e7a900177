"""What the job remembers of one merchant, read from its checkpoint: `holdfast job inspect`."""
