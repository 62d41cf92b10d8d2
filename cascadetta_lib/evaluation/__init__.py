"""One loop over a stream; E, A and F."""
