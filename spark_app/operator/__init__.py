"""TODOROOM spark_app/operator"""
