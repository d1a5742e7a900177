"""TODOROOM dispatcher/cli/common"""
