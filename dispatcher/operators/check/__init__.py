"""TODOROOM dispatcher/operators/check"""
