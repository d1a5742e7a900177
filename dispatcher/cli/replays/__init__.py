"""`holdfast replay`, `redeliver` and `reissue`."""
