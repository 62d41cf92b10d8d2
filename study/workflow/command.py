"""The command line of run_all.sh. Only the standard library, because --help needs no
environment."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DONE, FAILED, BAD_ARGUMENTS, DATA_MISSING, NOTEBOOK_FAILED, STOPPED = 0, 1, 2, 3, 4, 130
EPILOG = """\
What stands after -- goes to Snakemake, which then speaks for itself:
  ./run_all.sh --profile paper -- --keep-going

./run_all.sh test makes the tests' environment and runs all tests; options go to pytest:
  ./run_all.sh test -k workflow

Exit codes: 0 done; 1 failed; 2 bad arguments or configuration; 3 data missing;
4 a notebook failed; 130 stopped.

What is finished is kept: the same command goes on after Ctrl-C, a kill or a failure.
results/PROFILE holds report.html and the executed notebooks; results/checkpoints and results/runs
hold what they stored.
In Python, study.settings.PARAMETERS[NAME].description explains a parameter.
"""


class Refusal(Exception):
    """The run cannot start or did not end well: what to say and the exit code."""

    def __init__(self, message: str, code: int = BAD_ARGUMENTS) -> None:
        super().__init__(message)
        self.code = code


def from_folder(name: str, value: Any, folder: Path) -> Any:
    """`value` with the relative paths in it taken from `folder`: npz:FOLDER, release:FILE, names
    ending in _folder.
    """
    if isinstance(value, list):
        return [
            item if isinstance(item, list) else from_folder(name, item, folder) for item in value
        ]
    kind, _, path = value.partition(":") if isinstance(value, str) else ("", "", "")
    if path and name.endswith(("_dataset", "_weights")):
        return f"{kind}:{folder / Path(path).expanduser()}"
    if kind and (
        name.endswith("_folder") or (name.endswith("_weights") and kind not in ("train", "shipped"))
    ):
        return str(folder / Path(value).expanduser())
    return value


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; what stands after `--` is `snakemake`. A wrong one is told with the nearest."""
    usage = "%(prog)s [OPTIONS] [-- SNAKEMAKE OPTIONS]\n       %(prog)s test [PYTEST OPTIONS]"
    about = "Make the environment once, execute the notebooks with a profile, write the report."
    looks = {"formatter_class": argparse.RawTextHelpFormatter, "epilog": EPILOG}
    parser = argparse.ArgumentParser("./run_all.sh", usage, about, **looks)  # type: ignore[arg-type]

    def add(name: str, about: str, example: str, **rest: Any) -> None:
        parser.add_argument(name, help=f"{about}\n  {example}", **rest)

    many = {"nargs": "+", "action": "extend", "default": []}
    profiles = ", ".join(sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml")))
    add(
        "--profile",
        f"{profiles} or a YAML file; quick is the default",
        "--profile mine.yaml",
        default="quick",
    )
    add(
        "--only",
        "only these notebooks",
        "--only 01_pretrain 02_adapt_image",
        metavar="NAME",
        **many,
    )
    add(
        "--seeds",
        "these seeds instead of the profile's, a job each",
        "--seeds 0,1,2",
        metavar="LIST",
    )
    about = "values instead of the profile's, in YAML; the results go into a folder of their own"
    add(
        "--set",
        about,
        "--set image_epochs=2 'image_methods=[erm, cascade]'",
        metavar="NAME=VALUE",
        **many,
    )
    add(
        "--jobs",
        "N notebooks at a time (one a GPU; without one, two)",
        "--jobs 4",
        type=int,
        metavar="N",
    )
    about = (
        "run the jobs on a cluster: slurm (profiles/slurm), or a folder of your own with "
        "Snakemake's config.yaml"
    )
    add("--cluster", about, "--profile paper --cluster slurm", metavar="NAME")
    about = "list the jobs, estimate what is left, start none"
    add("--dry-run", about, "--profile paper --dry-run", action="store_true")
    about = "execute these and what follows from them again (stored results are still used)"
    add("--force", about, "--force 02_adapt_image", metavar="NAME", **many)
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options, unknown = parser.parse_known_args(arguments[:cut])
    if unknown:
        from cascadetta_lib.registry import nearest

        known = [name for name in parser._option_string_actions if name.startswith("--")]
        parser.error(f"{unknown[0]} is no argument; {nearest(unknown[0], known)}")
    if options.jobs is not None and options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: allowed are whole numbers from 1 on")
    options.snakemake = list(arguments[cut + 1 :])
    return options


def main(arguments: Sequence[str], notebooks: Path = ROOT / "notebooks") -> int:
    """Run what the command line says; the exit code."""
    options = parse(arguments)
    try:
        from study.workflow.run import run

        run(options, notebooks)
    except (
        Refusal,
        ValueError,
        OSError,
    ) as error:  # such as a results folder that cannot be written to
        print(f"run_all.sh: {error}", file=sys.stderr)
        return error.code if isinstance(error, Refusal) else BAD_ARGUMENTS
    except KeyboardInterrupt:
        print("run_all.sh: stopped; the same command goes on from here", file=sys.stderr)
        return STOPPED
    return DONE
