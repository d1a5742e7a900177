"""Changes of the pure modules, one at a time and made by a program: a test has to notice each.

`make mutants` takes the modules and their tests from `tests/mutations/modules.toml`. What no test
notices, and need not, stands in `tests/mutations/equivalent.toml` with the reason.
"""
