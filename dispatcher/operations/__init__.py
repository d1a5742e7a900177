"""What an operator does in several steps: alike by command, by the API and in the console."""
