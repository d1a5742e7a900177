"""TODOROOM spark_app/runtime"""
