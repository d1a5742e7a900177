"""TODOROOM dispatcher/operators/dead_letters"""
