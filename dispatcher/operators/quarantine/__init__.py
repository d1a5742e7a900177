"""TODOROOM dispatcher/operators/quarantine"""
