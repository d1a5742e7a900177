"""The `holdfast` command."""
