"""The rules of delivery. Pure: no I/O, no clock."""
