"""`python -m study.workflow [OPTIONS]` is what run_all.sh calls."""

import sys

from study.workflow.command import main

sys.exit(main(sys.argv[1:]))
