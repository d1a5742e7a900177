"""TODOROOM dispatcher/cli/endpoints"""
