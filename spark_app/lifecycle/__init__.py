"""TODOROOM spark_app/lifecycle"""
