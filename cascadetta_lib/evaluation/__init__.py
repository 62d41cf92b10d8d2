"""Evaluate: one loop over a stream (evaluator.py), E, A and F (metrics.py), and costs (cost.py)."""
