"""What a rate of events costs: interval, state, checkpoint, memory and recovery time."""
