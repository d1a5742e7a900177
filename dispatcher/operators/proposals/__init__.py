"""TODOROOM dispatcher/operators/proposals"""
