"""What the engine reports: log lines, metrics and spans."""
