"""Measurements that print a table and end with one JSON line."""
