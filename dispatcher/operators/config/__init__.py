"""TODOROOM dispatcher/operators/config"""
