"""TODOROOM dispatcher/api/console/rendering"""
