"""TODOROOM dispatcher/shared"""
