"""TODOROOM spark_app/checkpoint"""
