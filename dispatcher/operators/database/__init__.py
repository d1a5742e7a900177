"""TODOROOM dispatcher/operators/database"""
