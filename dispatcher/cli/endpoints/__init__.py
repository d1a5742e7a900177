"""`holdfast endpoint`: the group, the settings that its options set, `apply` and `test`."""
