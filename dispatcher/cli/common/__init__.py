"""What the commands share: options, output, confirmation."""
