"""What the commands for trying out a receiver share: `listen`, `trigger`, `sign`, `verify`."""
