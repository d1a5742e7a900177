"""TODOROOM dispatcher/operators/audit"""
