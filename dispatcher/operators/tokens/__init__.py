"""Tokens of the API and logins of the console."""
