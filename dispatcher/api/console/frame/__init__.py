"""TODOROOM dispatcher/api/console/frame"""
