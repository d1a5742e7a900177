"""TODOROOM dispatcher/operators/common"""
