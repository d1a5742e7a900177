"""TODOROOM dispatcher/cli/quarantine"""
