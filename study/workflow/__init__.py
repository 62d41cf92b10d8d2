"""The workflow behind run_all.sh: from the command line to the report."""
