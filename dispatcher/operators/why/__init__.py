"""TODOROOM dispatcher/operators/why"""
