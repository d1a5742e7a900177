"""TODOROOM dispatcher/operators/replays"""
