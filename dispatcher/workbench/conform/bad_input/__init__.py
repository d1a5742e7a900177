"""TODOROOM dispatcher/workbench/conform/bad_input"""
