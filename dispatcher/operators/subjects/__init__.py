"""TODOROOM dispatcher/operators/subjects"""
