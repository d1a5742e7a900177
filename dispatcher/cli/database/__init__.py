"""TODOROOM dispatcher/cli/database"""
