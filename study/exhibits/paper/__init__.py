"""Exhibits for the tables, figures and Theorem 1 of the paper."""
