#!/usr/bin/env bash
# papermill 2.7.0 with nbclient 0.11.0, ipykernel 7.4.0: the kernel dies in the second of three cells.
# Expected: exit status 1, and the second cell marked "failed", as after an exception. Seen: exit
# status 138, and all three cells marked "completed", none with an exception, also the third, which
# never ran; whether the kernel died with status 0, with status 3 or by SIGKILL, as the system ends a
# process that takes too much memory. Execution counts do not tell either: the second cell has one
# after status 0, but none after the other two. After an exception it is as expected.
# Limits: tried on Linux with the Python kernel. Where the field meets it: a report that looks in the
# notebook for the cell that failed finds none.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m venv "$folder/environment"
"$folder/environment/bin/pip" install --quiet papermill==2.7.0 nbclient==0.11.0 ipykernel==7.4.0 \
  nbformat==5.11.1
PATH=$folder/environment/bin:$PATH
cd "$folder"
python - <<'CODE'
import subprocess

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

ENDS = {
    "exception": "raise ValueError",
    "status 0": "import os; os._exit(0)",
    "status 3": "import os; os._exit(3)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}
kernel = {"name": "python3", "display_name": "Python", "language": "python"}
seen = {}
for name, end in ENDS.items():
    cells = [new_code_cell(source) for source in ("print(1)", end, "print(3)")]
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), "in.ipynb")
    command = ["papermill", "in.ipynb", "out.ipynb", "--no-progress-bar"]
    status = subprocess.run(command, capture_output=True).returncode
    # After an exception papermill adds cells of its own; the three are the last with these sources.
    marks = []
    for cell in nbformat.read("out.ipynb", 4).cells:
        if cell.source in ("print(1)", end, "print(3)"):
            marks.append((cell.metadata.papermill.status, cell.metadata.papermill.exception))
    seen[name] = (status, marks)
    print(name, *seen[name])
completed = ("completed", False)
assert seen["exception"] == (1, [completed, ("failed", True), ("pending", None)])
for name in ("status 0", "status 3", "SIGKILL"):
    assert seen[name] == (138, [completed, completed, ("completed", None)]), name
CODE
