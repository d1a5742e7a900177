"""TODOROOM dispatcher/operators/entries"""
