"""What is wrong, in order of harm: since when, whom it touches, why, and the next command."""
