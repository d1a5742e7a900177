"""TODOROOM dispatcher/operators/endpoints"""
