"""TODOROOM spark_app/command"""
