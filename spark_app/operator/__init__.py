"""The stateful operator: map side, state, output."""
