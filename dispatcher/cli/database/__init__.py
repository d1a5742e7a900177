"""`holdfast database`, `check` and `config`."""
