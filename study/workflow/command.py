"""The command line of run_all.sh: `python -m study.workflow`."""

import sys
from collections.abc import Sequence
from pathlib import Path

from study import ROOT
from study.workflow.arguments import check, parse
from study.workflow.refusal import BAD_ARGUMENTS, DONE, STOPPED, Refusal


def main(arguments: Sequence[str], notebooks: Path = ROOT / "notebooks") -> int:
    """Run the command line and return its exit code."""
    options = parse(arguments)
    try:
        check(options, notebooks)
        # Imported here, so that bad arguments are refused before PyTorch is imported.
        from study.workflow.configuration import settings_of_command_line

        settings = settings_of_command_line(options, Path.cwd())
        # Imported here, so that bad settings are refused before it is imported.
        from study.workflow.run import run

        run(options, settings, notebooks)
    except Refusal as refusal:
        print(f"run_all.sh: {refusal}", file=sys.stderr)
        return refusal.code
    except (ValueError, OSError) as error:  # such as a results folder that cannot be written to
        print(f"run_all.sh: {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    except KeyboardInterrupt:
        print("run_all.sh: stopped; the same command goes on from here", file=sys.stderr)
        return STOPPED
    return DONE
