"""Parse the arguments of run_all.sh, and refuse those that are wrong under every profile.

This module imports only the standard library and modules that do the same. So --help needs no
environment, and a misspelled argument is refused without waiting for PyTorch.
"""

import argparse
import reprlib
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from study import ROOT
from study.workflow.refusal import Refusal, allowed_instead

EPILOG = """\
What stands after -- goes to Snakemake, whose own output is then shown:
  ./run_all.sh --profile paper -- --keep-going

./run_all.sh test makes the tests' environment and runs all tests; options go to pytest:
  ./run_all.sh test -k workflow

./run_all.sh site makes all pages as a site with a search:
  ./run_all.sh site --profile quick

Exit codes: 0 done; 1 failed; 2 bad arguments or configuration; 3 data missing;
4 a notebook failed; 130 stopped.

What is finished is kept: the same command goes on after Ctrl-C, a kill or a failure.
results/PROFILE holds report.html and the executed notebooks; results/checkpoints and results/runs
hold what they stored.
In Python, study.settings.PARAMETERS[NAME].description explains a parameter.
"""


def profiles() -> list[str]:
    """Return the names of the profiles in profiles/."""
    return sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))


def notebooks_in(folder: Path) -> list[Path]:
    """Return the notebooks `NN_name.ipynb` in `folder`, by name."""
    return sorted(folder.glob("[0-9][0-9]_*.ipynb"))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options. `snakemake` holds the arguments after `--`. After a wrong option, print a
    message and exit with 2.
    """
    parser = argparse.ArgumentParser(
        "./run_all.sh",
        usage="%(prog)s [OPTIONS] [-- SNAKEMAKE OPTIONS]\n       %(prog)s test [PYTEST OPTIONS]",
        description="Make the environment once, execute the notebooks with a profile, write the "
        "report.",
        epilog=EPILOG,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    known: list[str] = ["--help"]

    def add(name: str, about: str, example: str, **rest: Any) -> None:
        known.append(name)
        parser.add_argument(name, help=f"{about}\n  {example}", **rest)

    several = {"nargs": "+", "action": "extend", "default": []}
    add(
        "--profile",
        f"{', '.join(profiles())} or a YAML file; quick is the default",
        "--profile mine.yaml",
        default="quick",
    )
    add(
        "--only",
        "only these notebooks",
        "--only 01_pretrain 02_adapt_image",
        metavar="NAME",
        **several,
    )
    add(
        "--seeds",
        "these seeds instead of the profile's, one job per seed",
        "--seeds 0,1,2",
        metavar="LIST",
    )
    add(
        "--set",
        "values instead of the profile's, in YAML; the results go into a folder of their own",
        "--set image_training_epochs=2 'image_methods=[erm, cascade]'",
        metavar="NAME=VALUE",
        **several,
    )
    add(
        "--jobs",
        "N notebooks at a time (default: one per GPU; on a machine without a GPU, two)",
        "--jobs 4",
        type=int,
        metavar="N",
    )
    add(
        "--cluster",
        "run the jobs on a cluster: slurm (profiles/slurm), or your own folder that holds "
        "Snakemake's config.yaml",
        "--profile paper --cluster slurm",
        metavar="NAME",
    )
    add(
        "--dry-run",
        "list the jobs, say what is stored, start none",
        "--profile paper --dry-run",
        action="store_true",
    )
    add(
        "--force",
        "execute these and what follows from them again (stored results are still used)",
        "--force 02_adapt_image",
        metavar="NAME",
        **several,
    )
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options, unknown = parser.parse_known_args(arguments[:cut])
    if unknown:
        parser.error(f"{unknown[0]} is no argument; {allowed_instead(unknown[0], known)}")
    if options.jobs is not None and options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: allowed are whole numbers from 1 on")
    options.snakemake = list(arguments[cut + 1 :])
    return options


def check(options: argparse.Namespace, notebooks: Path) -> None:
    """Refuse arguments that are wrong under every profile: a profile or a notebook that does not
    exist, and a --set that is not NAME=VALUE, sets `seed` or repeats a name. Raises Refusal.
    """
    _check_profile(options.profile)
    known = [path.stem for path in notebooks_in(notebooks)]
    chosen = options.only or known
    check_notebooks("--only", options.only, known)
    check_notebooks("--force", options.force, chosen)
    for pair in options.set:
        if pair.startswith("seed="):
            raise Refusal(f"--set {pair[:200]}: each job has its own seed; use --seeds")
    check_pairs(options.set, [] if options.seeds is None else ["seeds"])


def check_pairs(pairs: Sequence[str], given: Sequence[str] = ()) -> None:
    """Raise Refusal if a text of --set is not NAME=VALUE, or if a name is given twice.

    given: names that another option gives.
    """
    named = list(given)
    for pair in pairs:
        name, equals, _ = pair.partition("=")
        if not equals:
            raise Refusal(
                f"--set {pair[:200]}: allowed is NAME=VALUE, such as image_training_epochs=2"
            )
        if name in named:
            raise Refusal(f"--set {pair[:200]}: it is given twice")
        named.append(name)


def _check_profile(profile: str) -> None:
    try:
        exists = profile in profiles() or Path(profile).is_file()
    except (OSError, ValueError):  # a name of thousands of letters, or one with a NUL
        exists = False
    if not exists:
        told = f"no such profile or file; {allowed_instead(profile[:60], profiles())}"
        raise Refusal(f"profile {reprlib.repr(profile)}: {told}")


def check_notebooks(where: str, names: Collection[str], known: Collection[str]) -> None:
    """Raise Refusal for the first name that is not known.

    where: the option or parameter that gave the names, for the message.
    """
    for name in names:
        if name not in known:
            raise Refusal(f"{where} {name}: no such notebook; {allowed_instead(name, known)}")


if __name__ == "__main__":  # run_all.sh calls this before it makes an environment
    try:
        check(parse(sys.argv[1:]), ROOT / "notebooks")
    except Refusal as refusal:
        print(f"run_all.sh: {refusal}", file=sys.stderr)
        sys.exit(refusal.code)
