"""Methods of the field beyond those of the paper. Each file has one method and its variants."""
