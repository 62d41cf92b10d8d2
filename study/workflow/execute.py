"""Execute one notebook with the Python that runs this file. The Snakefile calls this script.

    execute.py NOTEBOOK OUTPUT PARAMETERS

PARAMETERS is a JSON object.
"""

import fcntl
import json
import logging
import os
import re
import resource
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parents[2]
PARTIAL = ".partial.ipynb"
FAILURE = ".failure.txt"
"""Suffixes of the files that a failed notebook leaves instead of its output."""


def isolate_kernel(folder: str) -> None:
    """Make the kernel use this Python's Jupyter and IPython, without the user's configuration.

    folder: an empty folder that replaces the user's folders of Jupyter and IPython.
    """
    for name in list(os.environ):
        if name.startswith(("JUPYTER_", "PYTHON", "MPLBACKEND")):
            del os.environ[name]
    os.environ |= dict.fromkeys(("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"), folder)
    os.environ |= {
        "JUPYTER_PATH": str(ROOT / "study" / "workflow"),
        "JUPYTER_NO_CONFIG": "1",
        "JUPYTER_PLATFORM_DIRS": "1",
    }
    os.environ |= {"PYTHONPATH": str(ROOT), "PYTHONNOUSERSITE": "1", "CASCADETTA_HEADLESS": "1"}


def stop_with_runner() -> None:
    """Wait until run.py ends, then stop this process, so that it does not disturb the next run.

    run.py holds the other end of the standard input and never writes to it, so the input ends when
    run.py does.
    """
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
    os._exit(1)  # the kernel ends with its parent


def take_gpu(names: list[str], folder: Path) -> TextIO | None:
    """Reserve the first free slot for this process, and use its GPU. Each slot serves one job at a
    time.

    Return an open file, or None if no slot is free. Closing the file frees the slot.

    names: the GPU of each slot. A GPU that is named several times has several slots.
    folder: where the lock files of the slots are.
    """
    for slot, name in enumerate(names):
        handle = (folder / f".slot{slot}").open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        os.environ["CUDA_VISIBLE_DEVICES"] = name
        return handle
    return None


def run(notebook: Path, output: Path, parameters: str) -> bool:
    """Execute `notebook` and write it to `output`. Return whether it succeeded.

    `output` appears only on success. After a failure, a file with the suffix PARTIAL has the
    notebook as far as it came, and one with the suffix FAILURE the error.

    parameters: a JSON object.
    """
    import papermill  # here, because it takes seconds, and run.py imports this file

    # papermill warns of each parameter that the notebook's cell lacks. Most are meant to be read
    # from the profile, and all were checked.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    print(f"{output.stem}: started", flush=True)
    start = time.monotonic()
    partial = output.with_suffix(PARTIAL)
    # papermill would replace a name between braces by a parameter
    paths = [str(path).replace("{", "{{").replace("}", "}}") for path in (notebook, partial)]
    how = {
        "kernel_name": "cascadetta",
        "language": "python",
        "cwd": str(ROOT),
        "progress_bar": False,
    }
    try:
        with tempfile.TemporaryDirectory(
            prefix="cascadetta-", ignore_cleanup_errors=True
        ) as folder:
            isolate_kernel(folder)
            # The library writes its lines of progress to the kernel's standard error.
            papermill.execute_notebook(
                *paths, json.loads(parameters), stderr_file=sys.stdout, **how
            )
        outcome = "done"
        partial.rename(output)
        output.with_suffix(FAILURE).unlink(missing_ok=True)  # left by an earlier attempt
    except KeyboardInterrupt:
        outcome = "stopped"
        partial.unlink(missing_ok=True)
    except Exception as error:  # a kernel can die in many ways; all are reported
        outcome = "FAILED"
        text = "\n".join(getattr(error, "traceback", [])) or str(error) or repr(error)
        lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]
        told = [f"{output.stem} failed", f"notebook: {notebook}", f"as far as it came: {partial}"]
        told += [
            f"cell: {getattr(error, 'source', 'the last one there').strip().splitlines()[0]}",
            "error:",
        ]
        output.with_suffix(FAILURE).write_text("\n  ".join([*told, *lines[-8:]]), encoding="utf-8")
    kernel = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{time.monotonic() - start:.0f} s, {kernel.ru_utime + kernel.ru_stime:.0f} s of CPU"
    print(f"{output.stem}: {outcome} after {took}", flush=True)
    return outcome == "done"


def main(notebook: str, output: str, parameters: str) -> bool:
    """Run the command line (see the top of this file). Return whether it succeeded."""
    source = Path(notebook).resolve()
    target = Path(output).resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if "CASCADETTA_RUNNER" in os.environ:
        threading.Thread(target=stop_with_runner, daemon=True).start()
    gpus = os.environ.get("CASCADETTA_GPUS")
    # The GPU is held until this process ends.
    gpu = take_gpu(gpus.split(","), target.parent) if gpus else None  # noqa: F841
    return run(source, target, parameters)


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
