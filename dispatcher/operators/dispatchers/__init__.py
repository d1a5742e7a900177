"""TODOROOM dispatcher/operators/dispatchers"""
