"""The demo: two hours of PayLedger traffic, two kills, and an independent audit."""
