"""Methods of the field beside the paper's, a file each."""
