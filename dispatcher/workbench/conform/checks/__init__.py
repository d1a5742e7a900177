"""TODOROOM dispatcher/workbench/conform/checks"""
