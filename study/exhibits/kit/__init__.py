"""Tools with which exhibits ask for runs, compare them, and show them in tables and figures."""
