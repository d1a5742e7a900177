"""TODOROOM dispatcher/delivery/rules"""
