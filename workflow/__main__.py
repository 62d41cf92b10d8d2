"""`python -m workflow [OPTIONS]` is what run_all.sh calls."""

import sys

from workflow.command import main

sys.exit(main(sys.argv[1:]))
