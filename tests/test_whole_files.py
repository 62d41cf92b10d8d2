"""Files are written whole or not at all: what writes one under its own name is found in the code.

An artefact gets its name only when all of it is on the disk: by `write_atomically`, by a
`ReportFolder`, or in a folder that is renamed. ALLOWED lists what may open a file in another way.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WRITERS = {
    *("write_text", "write_bytes", "savefig", "tofile", "save_pretrained"),
    *("to_csv", "to_json", "to_html", "to_latex", "to_markdown", "to_pickle", "to_parquet"),
}
"""What writes to the path that is its first argument; without one, `to_csv` returns a text."""
FUNCTIONS = {
    *("np.save", "np.savez", "np.savez_compressed", "np.savetxt", "torch.save", "save_model"),
    *("save_file", "json.dump", "pickle.dump", "nbformat.write", "shutil.copy", "shutil.copyfile"),
    *("shutil.copy2", "shutil.copytree", "shutil.move", "yaml.dump", "yaml.safe_dump", "imsave"),
}
RETURN_A_TEXT = {"yaml.dump", "yaml.safe_dump"}
"""Functions that write only where they are given a second argument."""
WHOLE = {"write_atomically", "files.write", "files.write_text", "files.write_bytes"}
"""What names a file when it is whole; `files` is a ReportFolder."""
ALLOWED = {
    "cascadetta_lib/files.py: write_atomically": "it is what all others use",
    "study/workflow/pages.py: _write": "it renames too, and does not import torch",
    "study/workflow/execute.py: take_gpu": "a lock",
    "study/workflow/execute.py: run": "the message of a failure, which nothing reads again",
    "study/workflow/run.py: lock": "a lock",
    "study/workflow/run.py: run_snakemake": "Snakemake's own lines, as they come",
    "study/store.py: _seal": "in a folder that is renamed when it is whole",
    "study/runs.py: make": "in such a folder of the store",
    "study/checkpoints.py: make": "in such a folder of the store",
    "study/tools/pack_runs.py: make": "in such a folder of the store",
    "study/exhibits/kit/report_folder.py: write_text": "by its own write_bytes",
    "study/exhibits/kit/rendering.py: png": "into memory",
    "study/tools/site.py: stage": "the site's sources, which each building writes anew",
    "study/tools/site.py: write_notebooks": "the same",
    "study/tools/site.py: write_api": "the same",
}
"""Where a file is opened for writing by its own name, and why."""


def name_of(function: ast.expr) -> str:
    """`np.save` of a call of it; of any other object's method the method alone."""
    if isinstance(function, ast.Attribute):
        return f"{name_of(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def opens_to_write(call: ast.Call) -> bool:
    """Whether a call of open(FILE, MODE) or FILE.open(MODE) has a mode that writes."""
    mode = call.args[1:2] if isinstance(call.func, ast.Name) else call.args[:1]
    mode += [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    modes = [each.value for each in mode if isinstance(each, ast.Constant)]
    return any(isinstance(each, str) and set(each) & set("wax+") for each in modes)


def writes(call: ast.Call) -> bool:
    name = name_of(call.func)
    last = name.rpartition(".")[2]
    if last == "open" and name != "os.open":
        return opens_to_write(call)
    if name in RETURN_A_TEXT:
        return len(call.args) > 1
    is_method = isinstance(call.func, ast.Attribute)
    return name in FUNCTIONS or (is_method and last in WRITERS and bool(call.args))


def written_by_name(node: ast.AST, function: str = "") -> Iterator[str]:
    """The function that holds each call that writes a file under its own name."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef) else function
        if isinstance(child, ast.Call):
            if name_of(child.func) in WHOLE:
                continue
            if writes(child):
                yield inside
        yield from written_by_name(child, inside)


def test_every_artefact_is_written_whole() -> None:
    found = set()
    for folder in ("cascadetta_lib", "study", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            place = path.relative_to(ROOT).as_posix()
            found |= {f"{place}: {function}" for function in written_by_name(tree)}
    assert found - ALLOWED.keys() == set(), "use write_atomically"
    assert ALLOWED.keys() - found == set(), "these write no file any more"


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ("open(path, 'w')", 1),
        ("open(path, mode='ab')", 1),
        ("path.open('x')", 1),
        ("path.open('r+')", 1),
        ("path.write_text(text)", 1),
        ("(folder / 'a.png').write_bytes(data)", 1),
        ("table.to_csv(path)", 1),
        ("figure.savefig(path)", 1),
        ("np.savez(path, x=x)", 1),
        ("torch.save(state, path)", 1),
        ("json.dump(values, open(path, 'w'))", 2),
        ("yaml.safe_dump(values, file)", 1),
        ("shutil.copy(path, other)", 1),
        ("open(path)", 0),
        ("path.open('rb')", 0),
        ("os.open(path, os.O_RDONLY)", 0),
        ("table.to_csv()", 0),
        ("yaml.safe_dump(values)", 0),
        ("write_atomically(path, lambda file: torch.save(state, file))", 0),
        ("files.write(name, lambda file: table.to_csv(file))", 0),
    ],
)
def test_what_counts_as_writing(code: str, count: int) -> None:
    assert len(list(written_by_name(ast.parse(code)))) == count
