"""Pre-training: objectives, the meta-gradient, the loop over epochs."""
