"""TODOROOM sink/rows"""
