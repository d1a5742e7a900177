"""What a faulty neighbour costs the endpoints beside it."""
