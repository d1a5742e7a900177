"""TODOROOM dispatcher/cli/replays"""
