"""TODOROOM dispatcher/operators/trace"""
