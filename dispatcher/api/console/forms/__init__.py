"""TODOROOM dispatcher/api/console/forms"""
