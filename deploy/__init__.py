"""How Holdfast runs: the local runtime, the payouts service, files for real platforms."""
