"""The admin API and the operators' console: what the commands do, over HTTP."""
