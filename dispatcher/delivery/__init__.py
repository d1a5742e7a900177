"""TODOROOM dispatcher/delivery"""
