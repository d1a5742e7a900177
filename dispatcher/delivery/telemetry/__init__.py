"""TODOROOM dispatcher/delivery/telemetry"""
