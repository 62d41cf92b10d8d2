"""The pages do not rot: their examples run on made-up images, their commands are accepted, what
they point to is there, and README.md's numbers are those of the committed tables.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import yaml

from cascadetta_lib import __version__
from study.exhibits.kit.numbers import places
from study.notebook_parameters import settings_from
from study.tools import fill
from study.workflow.arguments import parse
from study.workflow.configuration import settings_of_command_line

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "RESULTS.md",
    "VERDICTS.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "weights/README.md",
    "docs/extending.md",
    "docs/methods.md",
    "docs/streams.md",
    "docs/profiles.md",
    "docs/provenance.md",
    "docs/choices.md",
    "docs/glossary.md",
    "docs/verdicts.md",
    "docs/changes.md",
)


def read(page: str) -> str:
    """The text of a page of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


README = read("README.md")
EXTENDING = read("docs/extending.md")
CONTRIBUTING = read("CONTRIBUTING.md")


def blocks(language: str, page: str = EXTENDING) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)


def commands(start: str) -> list[list[str]]:
    """The arguments of every command of README.md and docs/extending.md that begins with `start`:
    those in bash blocks, and those in README.md's table."""
    lines = []
    for page in (README, EXTENDING):
        for block in blocks("bash", page):
            lines += block.splitlines()
    for row in README.splitlines():
        if row.startswith("|"):
            lines += re.findall(r"`([^`]+)`", row)
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(start)]


NAMED = re.compile(r"# \S+\.py\n")
"""How an example begins that is a file in the place that it names."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code, with each example that names a file in the place that it names."""
    copy = tmp_path_factory.mktemp("repository")
    leave = shutil.ignore_patterns("__pycache__")
    folders = ("cascadetta_lib", "study", "benchmarks", "profiles", "tests", "notebooks", "docs")
    for folder in folders:
        shutil.copytree(ROOT / folder, copy / folder, ignore=leave)
    for name in (".mypy_cache", "pyproject.toml"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name)
        elif (ROOT / name).exists():
            shutil.copy2(ROOT / name, copy / name)
    put_examples(copy)
    return copy


def put_examples(copy: Path) -> list[Path]:
    """Put each example that names a file, and the claim, in its place. Return these places. Whoever
    tries an example out may have put it there already.
    """
    named = [block for block in blocks("python") if NAMED.match(block)]
    assert len(named) == 3
    places = []
    for block in named:
        name, text = block.removeprefix("# ").split("\n", 1)
        place = copy / name
        there = place.read_text(encoding="utf-8") if place.exists() else text
        assert there == text, f"{name} is not the docs' example of that name: call it otherwise"
        place.write_text(text, encoding="utf-8")
        places.append(place)
    declare(copy / "notebooks/02_adapt_image.ipynb", "worst_domain")
    [claim] = [block for block in blocks("csv") if block.startswith("Sec. ")]
    claims = copy / "study/exhibits/verdicts/claims.csv"
    known = claims.read_text(encoding="utf-8")
    if claim not in known:
        claims.write_text(known + claim, encoding="utf-8")
    return [*places, claims]


def declare(path: Path, exhibit: str) -> None:
    """Let a notebook declare an exhibit first of all, and run it, unless it does already."""
    notebook = nbformat.read(path, as_version=4)
    [begin] = [cell for cell in notebook.cells if "notebook.begin(" in cell.source]
    if f'"{exhibit}"' in begin.source:
        return
    begin.source = begin.source.replace("exhibits=[", f'exhibits=["{exhibit}", ')
    cell = nbformat.v4.new_code_cell(f'exhibits.run("{exhibit}", study)')
    notebook.cells.insert(notebook.cells.index(begin) + 1, cell)
    nbformat.write(notebook, path)


def test_an_example_may_be_in_its_place_already(repository: Path) -> None:
    before = {place: place.read_text(encoding="utf-8") for place in put_examples(repository)}
    assert {
        place: place.read_text(encoding="utf-8") for place in put_examples(repository)
    } == before


def run_in(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the copy of the code, in its folder."""
    variables = os.environ | {"PYTHONPATH": str(repository)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=repository, env=variables, capture_output=True, text=True)


MADE_UP = """
import numpy as np
generator = np.random.default_rng(0)
train_images = generator.integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
test_images = generator.integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
train_labels = np.arange(60, dtype=np.int64) % 10
test_labels = np.arange(20, dtype=np.int64) % 10
"""
CHECKED = """
assert logits.shape == (32, 10), "of the cascade on a backbone"
assert loss.isfinite()
assert gradients.keys() == {name for name, _ in method.model.named_parameters()}
assert all(gradient.abs().sum() > 0 for gradient in gradients.values())
assert plain.run("sharp_tent").batches["count"].sum() == 15 * 20, "images times corruptions"
[table] = [part.content for part in shown.parts if part.name == "worst-domain"]
assert list(table.index) == ["AdaBN", "Tent"], table
assert by_rate.shape == (2, 3)
assert len(list(study.store.runs())) == 10
assert len(photos) == 20 and photos[0][0].shape == (3, 32, 32)
assert photos.classes[0] == "0" and photos[0][1] == classes.index("0")
assert wrong.keys() | refused.keys() == set(cascadetta_lib.METHODS), "each runs or is refused"
assert set(refused) == {"ttt", *(name for name in refused if name.startswith("cascade"))}, refused
plain_network = network.eval()
errors_of_network = sum(int((plain_network(x).argmax(1) != y).sum()) for x, y in batches)
assert wrong["erm"] == errors_of_network
"""

THE_USERS = """
model = small
x = batches[0][0]
"""
"""What README.md's examples take: the user's network and a batch for it."""


def test_the_examples_run_one_after_the_other(repository: Path) -> None:
    examples = [block for block in blocks("python") if not NAMED.match(block)]
    of_readme = [THE_USERS, *blocks("python", README)]
    done = run_in(repository, "-c", "\n".join([MADE_UP, *examples, CHECKED, *of_readme]))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [len(line) for line in lines] == [1, 3, 3, 1, 2, 2, 2]
    errors_and_accuracies = [float(value) for line in lines for value in line[:2]]
    assert all(0 <= value <= 1 for value in errors_and_accuracies)


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check", "cascadetta_lib", "study"],
        ["ruff", "format", "--check", "cascadetta_lib", "study"],
        ["mypy", "cascadetta_lib", "study"],
        ["pytest", "-q", "-p", "no:cacheprovider", "tests/test_quality.py", "-k", "not checker"],
        ["pytest", "-q", "-p", "no:cacheprovider", "-k", "sharp_tent or bars or one_whatever"]
        + [
            f"tests/test_{name}.py"
            for name in ("methods", "methods_on_networks", "images", "claims")
        ],
        ["pytest", "-q", "-p", "no:cacheprovider", "tests/test_notebooks.py", "-k"]
        + ["every_exhibit or declares or without_results"],
        ["study.tools.methods_table"],
        ["study.workflow", "--only", "02_adapt_image", "--dry-run", "--set"]
        + ["image_methods=[adabn, tent, cascade, sharp_tent]", "image_dataset=bars"],
    ],
    ids=" ".join,
)
def test_an_example_that_names_a_file_works_in_its_place(
    repository: Path, command: list[str]
) -> None:
    done = run_in(repository, "-m", *command)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_that_the_pages_name_are_there() -> None:
    asked = [arguments for arguments in commands("./run_all.sh test") if "-k" in arguments]
    assert len(asked) > 3
    for arguments in asked:
        texts = [read(name) for name in arguments if name.startswith("tests/")]
        for word in arguments[arguments.index("-k") + 1].split(" or "):
            if word not in ("sharp_tent", "my_method", "bars"):
                assert any(word in text for text in texts), word


def test_every_command_is_accepted(tmp_path: Path) -> None:
    known = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    apart = (["test"], ["site"], ["python"])
    asked = [arguments for arguments in commands("./run_all.sh") if arguments[:1] not in apart]
    assert len(asked) > 10
    for arguments in asked:
        if re.search("sharp_tent|my_method|bars", " ".join(arguments)):
            continue  # of what an example adds; see the test of files in their places
        options = parse(arguments)
        assert set(options.only) <= known
        found = settings_of_command_line(options, tmp_path)
        assert (found.profile == options.profile) == (not options.set), (
            "other values have results of their own"
        )


def test_the_example_of_a_shipped_network_runs() -> None:
    [block] = blocks("python", read("weights/README.md"))
    found: dict[str, Any] = {}
    exec(compile(block, "weights/README.md", "exec"), found)
    main, auxiliary = found["model"](torch.rand(4, 3, 32, 32) * 2 - 1)
    assert main.shape == auxiliary.shape == (4, 10)


def test_the_papermill_command_means_what_it_says() -> None:
    assert commands(".venv/bin/papermill")
    for arguments in commands(".venv/bin/papermill"):
        assert (ROOT / arguments[0]).is_file()
        place = arguments.index("-p")
        name = arguments[place + 1]
        value = yaml.safe_load(arguments[place + 2])
        profile = yaml.safe_load(
            (ROOT / arguments[arguments.index("-f") + 1]).read_text(encoding="utf-8")
        )
        assert getattr(settings_from(profile | {name: value}), name) == value


def test_every_profile_is_in_the_table() -> None:
    named = re.findall(r"^\| `(\w+)` \|", read("docs/profiles.md"), flags=re.MULTILINE)
    assert sorted(named) == sorted(path.stem for path in (ROOT / "profiles").glob("*.yaml"))


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_is_there(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]+)", read(page))
    assert not [link for link in links if "://" not in link and not (path.parent / link).exists()]


def headings(page: Path) -> set[str]:
    """The anchors that GitHub and the site give to a page's headings."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


NOTEBOOKS = [f"notebooks/{path.name}" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS])
def test_what_a_page_links_to_has_that_heading(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", read(page))
    missing = []
    for link, heading in links:
        target = path.parent / link if link else path
        if target.suffix == ".md" and "://" not in link and heading not in headings(target):
            missing.append(f"{link}#{heading}")
    assert missing == []


@pytest.mark.parametrize("page", fill.pages(), ids=lambda page: page.name)
def test_a_filled_page_is_what_its_template_and_the_tables_make(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == fill.pages()[page], (
        "run ./run_all.sh python study/tools/fill.py"
    )


@pytest.mark.parametrize(
    "template", sorted(fill.TEMPLATES.glob("*.md")), ids=lambda path: path.stem
)
def test_no_number_of_a_template_is_typed(template: Path) -> None:
    typed = re.sub(r"{[{%].*?[}%]}", "", template.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = r"0\.0*1|momentum 0\.9|Sec\. \d\.\d|version \d\.\d\.\d|10\.\d+/[\d.]+"
    assert not re.findall(r"\d+\.\d+", re.sub(names, "", typed))


DIFFERENCES = """difference,difference of E (points),"95 %, over seeds","95 %, over test batches",n
Tent − Cascade,−3.62,–,"[−4.22, −3.04]",1
RoTTA − Cascade,+4.71,–,"[−1.10, 8.60]",1
SAR − Cascade,−0.07,–,"[−0.39, 0.27]",1
"Cascade, θ_m fixed − AdaBN",+1.25,–,"[0.50, 2.00]",1
"""
METRICS = """method,source,E,A
Tent,ours,20.36 ± 1.25,81.08
Tent,paper,35.67,–
Cascade,ours,−0.01,76.87
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with two tables as exhibits write them."""
    (tmp_path / "d.csv").write_text(DIFFERENCES, encoding="utf-8")
    (tmp_path / "m.csv").write_text(METRICS, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (
            "Tent",
            "Cascade",
            "Tent has an error 3.6 points lower than the cascade "
            "(95 % interval over images: 3.0 to 4.2)",
        ),
        (
            "Cascade",
            "Tent",
            "the cascade has an error 3.6 points higher than Tent "
            "(95 % interval over images: 3.0 to 4.2)",
        ),
        (
            "SAR",
            "Cascade",
            "SAR has an error 0.1 points lower than the cascade "
            "(95 % interval over images: 0.3 higher to 0.4 lower; undecided)",
        ),
        (
            "Cascade",
            "RoTTA",
            "the cascade has an error 5 points lower than RoTTA "
            "(95 % interval over images: 1 higher to 9 lower; undecided)",
        ),
        (
            "Cascade, θ_m fixed",
            "AdaBN",
            "the cascade with θ_m fixed has an error 1.3 points higher than AdaBN "
            "(95 % interval over images: 0.5 to 2.0)",
        ),
    ],
)
def test_a_sentence_says_whose_error_is_lower_or_that_it_is_undecided(
    tables: Path, first: str, second: str, said: str
) -> None:
    assert fill.Differences("d", folder=tables).compare(first, second) == said
    either = fill.Differences("d", ["seeds", "test batches"], folder=tables)
    assert either.compare(first, second) == said
    unknown = fill.Differences("d", ["seeds"], folder=tables).compare(first, second)
    assert unknown.endswith("(no interval)") and "undecided" not in unknown


OF_ORDERS = """difference,difference of E (points),"95 %, over orders","95 %, over test batches",n
Tent − Cascade,−1.90,"[−2.40, −1.40]","[−2.20, −1.60]",5
ERM − Cascade,−2.30,–,"[−2.50, −2.10]",1
SAR − Cascade,5.23,"[0.10, 10.34]",–,3
RoTTA − Cascade,−1.00,–,"[−1.30, −0.70]",2
"""


def test_a_sentence_names_what_its_interval_is_over(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text(OF_ORDERS, encoding="utf-8")
    leads = fill.Differences("o", ["orders", "test batches"], folder=tmp_path)
    assert leads.compare("Tent", "Cascade", "it") == (
        "it has an error 1.9 points lower than the cascade "
        "(95 % interval over five orders: 1.4 to 2.4)"
    )
    assert leads.scope("Cascade", "ERM") == "images, in one order"
    assert leads.scope("Cascade", "RoTTA") == "images, in two orders"


OF_SEEDS = "label,seed,E,A\na,0,12,80\na,1,13,79\na,2,99,1\nb,0,10,81\nb,1,10.5,82\nc,5,1,1\n"


def test_a_sentence_over_networks_is_over_those_that_both_have(tmp_path: Path) -> None:
    (tmp_path / "of-numbers.csv").write_text(OF_SEEDS)
    name = str(tmp_path / "of-numbers")
    assert fill.losses(name, "a", "b") == [2, 2.5]
    assert fill.losses(name, "a", "b", "A") == [1, 3]
    said = fill.over_networks(name, "a", "b")
    assert said.startswith(
        "a has an error 2.3 points higher than b (95 % interval over two networks: "
    )
    with pytest.raises(ValueError, match="a and c share no seed"):
        fill.losses(name, "a", "c")


@pytest.mark.parametrize("rows", ["a,0,12,80\nb,0,10,81\n", "a,0,3,1\na,1,4,1\nb,0,1,1\nb,1,2,1\n"])
def test_a_single_network_and_equal_differences_have_no_interval(tmp_path: Path, rows: str) -> None:
    (tmp_path / "of-numbers.csv").write_text(f"label,seed,E,A\n{rows}")
    said = fill.over_networks(str(tmp_path / "of-numbers"), "a", "b")
    assert said == "a has an error 2.0 points higher than b (no interval)"


def test_an_end_near_zero_is_not_rounded_to_zero(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text(OF_ORDERS, encoding="utf-8")
    leads = fill.Differences("o", ["orders"], folder=tmp_path)
    assert leads.compare("SAR", "Cascade") == (
        "SAR has an error 5.2 points higher than the cascade "
        "(95 % interval over three orders: 0.1 to 10.3)"
    )


PLAIN = ",False,,,,,after\n"
"""The end of a row: no resets, no alarm, and the method's own optimiser, diversity and memory."""
ONE_ORDER = PLAIN.join(
    [
        "dataset,batches,weights,order,order_seed,finished,method,rate,E,A,"
        "reset_each,on_alarm,optimizer,diversity,memory,predict\n"
        "cifar10,4695,release:1,,0.0,1,tent,0.001,99.0,1.0",
        "cifar10,4695,release:1,,0.0,2,tent,0.001,21.04,78.02",
        "cifar10,4695,release:1,,1.0,3,tent,0.0001,98.0,2.0",
        "cifar10,4695,train,,0.0,4,tent,0.0001,97.0,3.0",
        "cifar10,465,release:1,,0.0,5,tent,0.0001,96.0,4.0",
        "cifar10,4695,release:1,,0.0,6,erm,0.001,31.0,69.0",
        "",
    ]
)
FASTER = f"cifar10,4695,release:1,,0.0,7,tent,0.01,85.5,8.5{PLAIN}"
OTHERWISE = (
    "cifar10,4695,release:1,,0.0,8,tent,0.001,95.0,5.0,True,,,,,after\n"
    "cifar10,4695,release:1,,0.0,9,tent,0.001,94.0,6.0,False,reset,,,,after\n"
    "cifar10,4695,release:1,,0.0,10,tent,0.001,93.0,7.0,False,,adam,,,after\n"
    "cifar10,4695,release:1,,0.0,11,tent,0.001,92.0,8.0,False,,,,8,after\n"
    "cifar10,4695,release:1,,0.0,12,tent,0.001,91.0,9.0,False,,,,,before\n"
)
"""Later runs of the same method at the same rate, each with an option of its own."""


def test_the_runs_of_one_order_are_the_latest_on_the_whole_stream_of_the_release(
    tmp_path: Path,
) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(ONE_ORDER + OTHERWISE, encoding="utf-8")
    one = fill.OneOrder(0, table)
    assert one.at("tent", 0.001) == "21.0" and one.at("tent", 0.0001) == "–"
    assert one.rows() == "| Tent | – | 21.0 / 78.0 | – |"


def test_the_span_of_a_method_is_over_its_rates(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(ONE_ORDER + FASTER, encoding="utf-8")
    assert fill.OneOrder(0, table).span("tent") == "21.0 and 85.5"


def test_numbers_are_found_by_row_and_column(tables: Path) -> None:
    table = fill.Table("m", folder=tables)
    assert table.at(("Tent", "ours"), "E") == "20.4"
    assert table.less(("Tent", "ours"), ("Tent", "paper"), "E", sign=True) == "+15.3"
    assert table.at(("Tent", "paper"), "A") == "–"
    shown = table.show({"E": "E (%)"}, rows=table.ours(), head="images").splitlines()
    assert shown[0] == "| images | E (%) |"
    assert shown[2:] == ["| Tent | 20.4 ± 1.3 |", "| Cascade | 0.0 |"]
    with pytest.raises(KeyError):
        table.at(("Tent", "ours"), "F")
    with pytest.raises(FileNotFoundError):
        fill.Table("missing", folder=tables)


@pytest.mark.parametrize(
    ("half", "decimals"),
    [(11.3, 0), (4.3, 0), (3.45, 1), (0.96, 1), (0.36, 1), (0.35, 2), (0.002, 2), (0.0, 2)],
)
def test_a_mean_has_the_decimals_that_its_interval_supports(half: float, decimals: int) -> None:
    assert places(half) == decimals
    assert places(half, most=1) == min(decimals, 1)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("35.89 ± 11.84", "36 ± 12"),
        ("31.15 ± 4.72", "31 ± 5"),
        ("27.40 ± 0.93", "27.4 ± 0.9"),
        ("60.540000 ± 4.110000 †", "61 ± 4 †"),
        ("[−23.71, −3.98]", "[−24, −4]"),
        ("109 ‡ / 84", "109 ‡ / 84"),
        ("20.36", "20.4"),
        ("14.250000", "14.3"),
        ("–", "–"),
    ],
)
def test_a_cell_of_a_filled_page_has_these_decimals(cell: str, shown: str) -> None:
    assert fill.with_its_decimals(cell) == shown


VERDICTS = """claim,verdict
text-error,**{}**{}
text-accuracy,**{}**
"""
GATE = """| gate | band | ours | passed | on |
| --- | --- | --- | --- | --- |
| E of ERM | 18.11 to 26.11 | 25.93 | yes | amazon_counts |
| E of AdaBN | 18.17 to 26.17 | {} | {} | amazon_counts |
"""


@pytest.mark.parametrize(
    ("verdicts", "gate", "said"),
    [
        (("contradicted", "", "contradicted"), ("25.00", "yes"), "two claims are *contradicted*"),
        (
            ("not tested", " (gate)", "not tested"),
            ("26.46", "**no**"),
            "none of the two claims could be tested: E of AdaBN is 26.46 %, and the rules allow "
            "18.17 to 26.17 %",
        ),
        (
            ("supported", "", "contradicted"),
            ("25.00", "yes"),
            "one claim is *supported* and one is *contradicted*",
        ),
    ],
)
def test_a_sentence_says_what_became_of_the_claims(
    tmp_path: Path, verdicts: tuple[str, ...], gate: tuple[str, ...], said: str
) -> None:
    (tmp_path / "v.csv").write_text(VERDICTS.format(*verdicts), encoding="utf-8")
    (tmp_path / "v.md").write_text(GATE.format(*gate), encoding="utf-8")
    assert fill.Verdicts("v", folder=tmp_path).say().endswith(said)


@pytest.mark.parametrize(
    ("name", "file"), re.findall(r"`([\w-]+)` in \[`[^`]+`\]\(([^)]+)\)", CONTRIBUTING)
)
def test_what_is_said_to_be_in_a_file_is_in_it(name: str, file: str) -> None:
    assert re.search(rf"(?<![\w-]){name}(?![\w-])", (ROOT / file).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_and_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["references"][0]["doi"] == "10.1145/3627673.3679801"


def test_each_finding_has_its_row_in_the_table() -> None:
    folder = ROOT / "findings"
    text = (folder / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\((\S+\.sh)\)", text)
    assert listed == sorted(path.name for path in folder.glob("*.sh"))


def test_no_finding_names_code_of_this_repository() -> None:
    for path in (ROOT / "findings").glob("*.sh"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"cascadetta|this study|\bstudy/", text, re.IGNORECASE), path.name
