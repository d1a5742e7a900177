"""TODOROOM dispatcher/operators/receipts"""
