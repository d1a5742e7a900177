"""TODOROOM dispatcher/cli/subjects"""
