"""TODOROOM spark_app/reporting"""
