"""Run the command line of run_all.sh: `python -m study.workflow [OPTIONS]`."""

import sys

from study.workflow.command import main

sys.exit(main(sys.argv[1:]))
