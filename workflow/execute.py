"""One notebook, executed by the Python that runs this file; called by the Snakefile.

    execute.py run NOTEBOOK OUTPUT PARAMETERS     parameters as a JSON object
    execute.py html NOTEBOOK OUTPUT               an executed notebook as a page without code

Exit codes: 0 done, 4 a cell failed (OUTPUT's .partial.ipynb and .failure.json say how), 130 stopped.
"""

import fcntl
import json
import logging
import os
import re
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ERROR_LINES = 8


def partial_path(output: Path) -> Path:
    return output.with_suffix(".partial.ipynb")


def failure_path(output: Path) -> Path:
    return output.with_suffix(".failure.json")


@contextmanager
def isolated_kernel() -> Iterator[None]:
    """A Jupyter of our own: the kernel `python3` is this Python, whatever is installed or configured elsewhere.

    JUPYTER_PREFER_ENV_PATH alone would not do: an environment without a kernelspec of its own, or a JUPYTER_PATH,
    leaves the choice to the user's folders. The first folder of JUPYTER_PATH comes before all others.
    """
    with tempfile.TemporaryDirectory(prefix="cascadetta-", ignore_cleanup_errors=True) as folder:
        kernel = Path(folder, "kernels", "python3", "kernel.json")
        kernel.parent.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "Python 3", "language": "python"}
        kernel.write_text(json.dumps(spec), encoding="utf-8")
        for name in ("JUPYTER_PATH", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            os.environ[name] = folder
        os.environ |= {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_NO_CONFIG": "1", "JUPYTER_PLATFORM_DIRS": "1"}
        os.environ |= {"PYTHONPATH": str(ROOT), "PYTHONNOUSERSITE": "1", "CASCADETTA_HEADLESS": "1"}
        for name in ("PYTHONSTARTUP", "PYTHONHOME", "MPLBACKEND", "JUPYTER_CONFIG_PATH"):
            os.environ.pop(name, None)
        yield


def stop_with_runner() -> None:
    """Stop this process when the runner is killed, so that the next run does not meet the old one still at work.

    The runner holds the other end of the standard input and never writes. Elsewhere (a cluster's node, Snakemake
    called by hand) there is no such pipe, and nothing is watched.
    """
    if not ("CASCADETTA_RUNNER" in os.environ and stat.S_ISFIFO(os.fstat(0).st_mode)):
        return

    def watch() -> None:
        os.read(0, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        os._exit(130)  # the kernel ends with its parent

    threading.Thread(target=watch, daemon=True).start()


def take_gpu(gpus: str, slots: int, folder: Path) -> object:
    """Show this process one of `gpus` ("0,1"), for `slots` jobs at a time in turn; hold the result while it runs."""
    names = gpus.split(",")
    for slot in range(slots):
        handle = (folder / f".slot{slot}").open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.close()
            continue
        os.environ["CUDA_VISIBLE_DEVICES"] = names[slot % len(names)]
        return handle
    return None


def failed_cell(partial: Path) -> str:
    """The first line of the last cell that was begun: the one that failed, or in which the kernel died."""
    from workflow.notebooks import code_cells

    cells = list(code_cells(partial)) if partial.exists() else []
    begun = [cell for cell in cells if cell["metadata"].get("papermill", {}).get("start_time")]
    if not begun:
        return "none (the kernel did not start)"
    lines = [line for line in begun[-1]["source"].splitlines() if line.strip()] or [""]
    return f"In [{begun[-1]['execution_count'] or ' '}]: {lines[0]}"


def literally(path: Path) -> str:
    """`path` as papermill takes it, which would fill in parameters between braces."""
    return str(path).replace("{", "{{").replace("}", "}}")


def execute(notebook: Path, output: Path, parameters: dict[str, Any]) -> int:
    """Execute `notebook` to `output`, which appears only when all went well."""
    import papermill
    from papermill.exceptions import PapermillExecutionError

    # The parameters were checked; that most of them are not in the cell but in the profile is as it should be.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    partial, failure = partial_path(output), failure_path(output)
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)
    failure.unlink(missing_ok=True)
    try:
        papermill.execute_notebook(
            literally(notebook),
            literally(partial),
            parameters,
            kernel_name="python3",
            language="python",
            cwd=str(ROOT),
            progress_bar=False,
            stderr_file=sys.stdout,  # the library's lines of progress
        )
    except KeyboardInterrupt:
        partial.unlink(missing_ok=True)
        return 130
    except Exception as error:  # a kernel can die in many ways; all are told
        text = "\n".join(error.traceback) if isinstance(error, PapermillExecutionError) else f"{error}"
        lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]
        told = {"cell": failed_cell(partial), "error": lines[-ERROR_LINES:] or [repr(error)], "partial": str(partial)}
        failure.write_text(json.dumps({"notebook": str(notebook)} | told, indent=1), encoding="utf-8")
        return 4
    partial.rename(output)
    return 0


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 0 auto; padding: 1rem; color: #222; }
nav { columns: 2; background: #f5f5f5; padding: .5rem 1rem; font-size: 14px; } nav .h3 { padding-left: 1.2rem; }
nav a { display: block; color: #0b4f8a; text-decoration: none; } img { max-width: 100%; }
table { border-collapse: collapse; font-size: 12px; display: block; overflow-x: auto; margin: .6rem 0; }
th, td { padding: .2rem .45rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
h2 { border-bottom: 2px solid #ddd; margin-top: 2.5rem; } small { color: #555; }
"""


def write_html(notebook: Path, output: Path) -> None:
    """The executed notebook as one page that needs no other file and no network: no code, no scripts, images inside,
    and a table of contents from its headings."""
    from nbconvert import HTMLExporter

    options = {"exclude_input": True, "exclude_output_prompt": True, "embed_images": True}
    body, _ = HTMLExporter(template_name="basic", **options).from_filename(str(notebook))
    body = re.sub(r'<a class="anchor-link".*?</a>', "", body)
    headings = re.findall(r'<(h[23]) id="([^"]+)"[^>]*>(.*?)</h[23]>', body)
    contents = "\n".join(f'<a class="{level}" href="#{anchor}">{title}</a>' for level, anchor, title in headings)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><link rel="icon" href="data:,">'
        f"<title>CascadeTTA: {notebook.stem}</title><style>{STYLE}</style></head>\n"
        f"<body><nav>{contents}</nav>\n{body}</body></html>\n"
    )
    partial = output.with_suffix(".partial")
    partial.write_text(page, encoding="utf-8")
    partial.rename(output)


def say(line: str) -> None:
    """One line in one piece, because several jobs write at a time."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Do what the command line says; see the top of this file."""
    action, notebook, output = arguments[0], Path(arguments[1]).resolve(), Path(arguments[2]).resolve()
    if action == "html":
        write_html(notebook, output)
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    stop_with_runner()
    gpus = os.environ.get("CASCADETTA_GPUS") if "SLURM_JOB_ID" not in os.environ else None  # Slurm has chosen one
    gpu = take_gpu(gpus, int(os.environ["CASCADETTA_JOBS"]), output.parent) if gpus else None
    say(f"{output.stem}: started")
    start = time.monotonic()
    with isolated_kernel():
        code = execute(notebook, output, json.loads(arguments[3]))
    del gpu
    outcome = {0: "done", 4: "FAILED", 130: "stopped"}[code]
    say(f"{output.stem}: {outcome} after {time.monotonic() - start:.0f} s")
    return code


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    sys.exit(main(sys.argv[1:]))
