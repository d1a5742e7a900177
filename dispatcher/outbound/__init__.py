"""TODOROOM dispatcher/outbound"""
