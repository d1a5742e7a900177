"""The whole system on one machine as processes, without containers: `holdfast local stack up`."""
