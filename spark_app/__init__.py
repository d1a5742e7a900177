"""The exposure job: reads events, decides payout holds, and hands them to the sink."""
