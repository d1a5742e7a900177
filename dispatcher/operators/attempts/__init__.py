"""TODOROOM dispatcher/operators/attempts"""
