"""TODOROOM dispatcher/operators/suppressed"""
