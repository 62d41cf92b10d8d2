"""Methods of the field beside the paper's, one per file."""
