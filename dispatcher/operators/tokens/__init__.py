"""TODOROOM dispatcher/operators/tokens"""
