"""Scripts beside the workflow."""
