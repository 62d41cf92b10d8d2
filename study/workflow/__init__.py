"""The workflow: `python -m study.workflow`."""
