"""The engine: routes batches to lanes, claims, sends, settles, and rescues expired leases."""
