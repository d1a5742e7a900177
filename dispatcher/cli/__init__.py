"""The `holdfast` command: one module or package for each command or group."""
