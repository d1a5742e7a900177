"""TODOROOM dispatcher/delivery/store"""
