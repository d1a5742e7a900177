"""Status and overview: backlog, rates, latency, and what needs a person."""
