"""Run a Python module, and interrupt it when the process that started it is gone.

    watched.py MODULE ARGUMENTS     as `python -m MODULE ARGUMENTS`

The starter holds the other end of the standard input and never writes to it, so the input ends when
the starter does. Snakemake itself does not notice that its starter is gone: it would go on to
submit jobs after run.py was killed. An interrupted Snakemake cancels the jobs of a cluster and
waits for local ones.
"""

import os
import runpy
import signal
import sys
import threading


def interrupt_without_starter() -> None:
    """Wait for the end of the standard input, then interrupt this process, as Ctrl-C does."""
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    threading.Thread(target=interrupt_without_starter, daemon=True).start()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
