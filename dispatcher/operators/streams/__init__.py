"""TODOROOM dispatcher/operators/streams"""
