"""What every room of the dispatcher uses. It imports none of them."""
