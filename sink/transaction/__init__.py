"""TODOROOM sink/transaction"""
