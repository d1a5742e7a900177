"""TODOROOM spark_app/input"""
