"""TODOROOM dispatcher/operators/overview"""
