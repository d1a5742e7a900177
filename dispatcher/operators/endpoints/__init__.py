"""Endpoints: their settings, and how they are added, changed and applied from files."""
