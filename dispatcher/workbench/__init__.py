"""TODOROOM dispatcher/workbench"""
