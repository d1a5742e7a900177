"""TODOROOM dispatcher/operators"""
