"""TODOROOM dispatcher/cli/workbench"""
