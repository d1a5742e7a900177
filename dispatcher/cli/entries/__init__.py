"""TODOROOM dispatcher/cli/entries"""
