"""CascadeTTA: a reproducible study of continual test-time adaptation with an adaptive cascading network."""

__version__ = "0.1.0"
