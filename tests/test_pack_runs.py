"""The committed runs: what is packed comes back, and nothing else does."""

import json
import lzma
import re
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
import pytest
from made_up_runs import Numbers, keep, made_up_runs, on_cifar10, points_of
from matplotlib.figure import Figure

from cascadetta_lib.data.streams import Domain
from cascadetta_lib.methods.rate_selection import rates_around
from study.exhibits import EXHIBITS
from study.exhibits.kit.points import Point
from study.exhibits.kit.stored_runs import Runs
from study.requests import code_of_theorem
from study.settings import Settings
from study.store import Damaged, Made, Run, Store
from study.tools.pack_runs import (
    FOLDER,
    check,
    columns_of,
    compact,
    file_name,
    main,
    pack,
    table_of,
    unpack,
)

DRAWN = ("main_image", "step_size", "uncertainty", "theorem", "rate_selection")
METHOD_NAMES = ("erm", "adabn", "tent", "tent_rate_selection", "cotta", "cascade")


def settings_in(folder: Path) -> Settings:
    return on_cifar10(folder, seeds=(0, 1), image_methods=METHOD_NAMES)


def selected(settings: Settings) -> list[Point]:
    """The points of the exhibit of selected rates on two of its streams."""
    points = points_of(settings, ["rate_selection"])
    return [point for point in points if point.changes["stream"] in ("instantaneous", "mixed")]


def drawn_from(run: Run) -> Run:
    """The run with numbers of its own in every batch: errors, entropies, distances, accuracies.

    A run that selects its rate is as far from the source as the one at the rate that is drawn.
    """
    generator = np.random.default_rng(zlib.crc32(run.request.key().encode()))
    count = len(run.batches)
    rates: float | np.ndarray = run.request.online_learning_rate
    if run.method == "tent_rate_selection":
        rates = generator.choice(rates_around(run.request.online_learning_rate), count)
    batches = run.batches.assign(
        errors=generator.integers(0, 9, count),
        entropy_main=generator.random(count).round(3),
        entropy_auxiliary=(run.batches["entropy_auxiliary"] * generator.random(count)).round(3),
        agreement=(run.batches["agreement"] * generator.random(count)).round(3),
        moved_normalization=rates * np.sqrt(np.arange(count)),
        moved_others=np.arange(count) / 7,
    )
    accuracies = run.accuracies.assign(accuracy=generator.random(len(run.accuracies)))
    return replace(run, batches=batches, accuracies=accuracies)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A results folder with made-up runs of several exhibits, and a check of Theorem 1."""
    settings = settings_in(tmp_path_factory.mktemp("made") / "results")
    store = Store(settings.results_path)
    numbers = Numbers((2,) * 12, count=32)
    points = points_of(settings, [name for name in DRAWN if name != "rate_selection"])
    points += selected(settings)
    runs = made_up_runs(settings, lambda *asked: numbers, points, (0, 1))
    for run in runs:
        keep(store, drawn_from(run))
    of_meta = next(run for run in runs if run.request.checkpoint.objective == "meta")
    request = of_meta.request.checkpoint
    content = (of_meta.provenance.fingerprint, code_of_theorem(request))
    found = {"error_chain_rule": 0.123456789, "least": float("nan")}
    store.make_once("theorem", request, content, lambda _: Made(of_meta.provenance, found))
    return settings


@pytest.fixture(scope="module")
def packed_once(made: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """These runs, packed."""
    folder = tmp_path_factory.mktemp("packed") / "runs"
    pack([made.results_path], folder)
    return folder


@pytest.fixture
def packed(packed_once: Path, tmp_path: Path) -> Path:
    """The same in a folder of the test's own."""
    return shutil.copytree(packed_once, tmp_path / "packed")


def tables(settings: Settings) -> dict[str, str]:
    """What every table and figure of the exhibits says, and every number behind it."""
    runs = Runs.of_settings(settings)
    said = {}
    for name in DRAWN:
        shown = EXHIBITS[name].show(runs)
        assert shown.numbers is not None and len(shown.numbers), f"{name}: {shown.lines}"
        said[f"{name}, numbers"] = shown.numbers.to_csv()
        for part in shown.parts:
            if isinstance(part.content, pd.DataFrame):
                said[part.name] = part.content.to_csv()
            else:
                said[part.name] = drawn_in(part.content)
    return said


def drawn_in(figure: Figure) -> str:
    """The places of all lines and areas of a figure, in four digits, as packed entropies have."""
    places = []
    for axes in figure.axes:
        places += [line.get_xydata() for line in axes.lines]
        for collection in axes.collections:
            places += [path.vertices for path in collection.get_paths()]
    return "\n".join(",".join(f"{value:.3g}" for value in np.ravel(each)) for each in places)


def test_the_exhibits_drawn_from_packed_runs_are_the_same(
    made: Settings, packed: Path, tmp_path: Path
) -> None:
    there = settings_in(tmp_path / "elsewhere")
    count = check(packed)
    for _ in range(2):  # what is there already stays
        assert unpack(there.results_path, packed) == count > 20
    wanted = tables(made)
    found = tables(there)
    assert "step-size" in found and "theorem" in found and "uncertainty-severity" in found
    assert found["rate-selection-over-time"]
    assert found == wanted


def forget_distances(packed: Path) -> None:
    """Pack as before, when no run had its distances by batch."""
    [path] = packed.glob("*.xz")
    lines = []
    for line in lzma.decompress(path.read_bytes()).decode().splitlines():
        record = json.loads(line)
        if record.pop("distances", "") == "by batch":
            batches = table_of(record["batches"])
            record["batches"] = columns_of(compact(batches, True, False))
        lines.append(json.dumps(record, ensure_ascii=False))
    text = "\n".join(lines) + "\n"
    path.unlink()
    (packed / file_name(text)).write_bytes(lzma.compress(text.encode()))
    pack([], packed)


def over_time(settings: Settings) -> str:
    """What the exhibit draws of the rate that was selected along each stream."""
    shown = EXHIBITS["rate_selection"].show(Runs.of_settings(settings))
    [part] = [part for part in shown.parts if part.name == "rate-selection-over-time"]
    assert isinstance(part.content, Figure)
    return drawn_in(part.content)


def test_a_selection_that_was_packed_without_distances_is_not_drawn(tmp_path: Path) -> None:
    """It would be drawn as the last selection of each domain. What is packed anew has them."""
    made = settings_in(tmp_path / "made")
    for run in made_up_runs(
        made, lambda *asked: Numbers((2,) * 12, count=32), selected(made), (0,)
    ):
        keep(Store(made.results_path), drawn_from(run))
    packed = tmp_path / "packed"
    pack([made.results_path], packed)
    forget_distances(packed)
    before = settings_in(tmp_path / "before")
    count = unpack(before.results_path, packed)
    shown = EXHIBITS["rate_selection"].show(Runs.of_settings(before))
    assert [part.name for part in shown.parts] == ["rate-selection", "rate-selection-figure"]
    [told] = [line for line in shown.lines if line.startswith("Not drawn: which rate was selected")]
    assert "on instantaneous, mixed. " in told and "keep only their distances at the end" in told
    assert pack([made.results_path], packed) == (8, count) == (8, 8), "four runs of each stream"
    after = settings_in(tmp_path / "after")
    assert unpack(after.results_path, packed) == count
    assert over_time(after) == over_time(made)


def test_the_table_says_what_the_runs_say(made: Settings, packed: Path) -> None:
    table = pd.read_csv(packed / "runs.csv").set_index("key")
    runs = {run.request.key(*_content(run)): run for run in Store(made.results_path).runs()}
    assert set(table.index) == set(runs)
    for key, run in runs.items():
        row = table.loc[key]
        fog = run.batches[run.batches["domain"] == "fog"]
        assert row["E_fog"] == pytest.approx(
            100 * fog["errors"].sum() / fog["count"].sum(), abs=1e-4
        )
        mixed = run.request.order == "mixed"  # where a batch has a row for each of its domains
        count = run.batches["position"].nunique() if mixed else len(run.batches)
        assert row["batches"] == count
        assert row["moved_others"] == pytest.approx(run.batches["moved_others"].iloc[-1], rel=1e-5)
        assert row["method"] == run.method and row["seed"] == run.seed
    dictionary = (packed / "README.md").read_text()
    described = set(re.findall(r"^\| (\w+) \|", dictionary, flags=re.MULTILINE))
    assert {re.sub("^E_.*", "E_DOMAIN", name) for name in ["key", *table]} == described - {"column"}


def _content(run: Run) -> tuple[str, str, str]:
    made_by = run.provenance
    return made_by.fingerprint, made_by.domain_source, made_by.code


def test_a_later_session_adds_a_file_and_leaves_the_others(
    made: Settings, packed: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in packed.glob("*.xz")}
    later = settings_in(tmp_path / "later")
    store = Store(later.results_path)
    points = points_of(later, ["main_image"])
    for run in made_up_runs(later, lambda *asked: Numbers((1,) * 12), points, (5,)):
        keep(store, run)
    assert pack([made.results_path, later.results_path], packed)[0] == len(points)
    after = {path.name: path.read_bytes() for path in packed.glob("*.xz")}
    assert len(after) == 2 and before.items() < after.items()
    rows = pd.read_csv(packed / "runs.csv")["seed"].value_counts()
    assert rows[5] == len(points) and rows[0] > len(points)
    files = {path.name: path.read_bytes() for path in packed.iterdir()}
    assert pack([later.results_path], packed)[0] == 0, "all of them are there"
    assert {path.name: path.read_bytes() for path in packed.iterdir()} == files


def test_names_of_domains_that_look_like_no_text_come_back(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "made")
    points = points_of(settings, ["main_image"])[:1]
    [run] = made_up_runs(settings, lambda *asked: Numbers((2,) * 12), points, (0,))
    stream = tuple(Domain(name, 1) for name in ("NA", "007", "null"))
    names = [stream[step % 3].name for step in run.batches["step"]]
    after = [stream[step % 3].name for step in run.accuracies["step"]]
    request = run.request.model_copy(update={"stream": stream})
    batches = run.batches.assign(domain=names)
    accuracies = run.accuracies.assign(domain=after)
    keep(
        Store(settings.results_path),
        replace(run, request=request, batches=batches, accuracies=accuracies),
    )
    pack([settings.results_path], tmp_path / "packed")
    unpack(tmp_path / "back", tmp_path / "packed")
    [found] = Store(tmp_path / "back").runs()
    assert list(found.batches["domain"]) == names
    assert list(found.accuracies["domain"]) == after


@pytest.mark.parametrize("errors", [3, 2])
def test_another_result_of_one_request_and_code_is_refused(errors: int, tmp_path: Path) -> None:
    """Equal errors on another device are the same result."""
    folder = tmp_path / "packed"
    for name, wrong in (("one", 2), ("other", errors)):
        settings = settings_in(tmp_path / name)
        points = points_of(settings, ["main_image"])[:1]
        numbers = Numbers((wrong,) * 12)
        [run] = made_up_runs(settings, lambda *asked, shown=numbers: shown, points, (0,))
        keep(
            Store(settings.results_path),
            replace(run, provenance=replace(run.provenance, device=name)),
        )
    pack([tmp_path / "one"], folder)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    if errors == 2:
        assert pack([tmp_path / "other"], folder) == (0, 1)
    else:
        with pytest.raises(
            ValueError,
            match=r"other: erm \(\w+\) differs from the packed .*\(made on other; packed: one\)",
        ):
            pack([tmp_path / "other"], folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def change_text(path: Path) -> None:
    """Exchange two digits of one E."""
    text = path.read_text()
    found = re.search(r",(\d)(?!\1)(\d)\.\d+,", text)
    assert found
    path.write_text(text.replace(found[0], f",{found[2]}{found[1]}{found[0][3:]}", 1))


def change_batches(path: Path) -> None:
    """Exchange the errors of two batches, which leaves E as it is."""
    text = lzma.decompress(path.read_bytes()).decode()
    found = re.search(r'"errors": \[(\d), (\d), (\d)', text)
    assert found
    one, two, three = found.groups()
    swapped = (
        f'"errors": [{three}, {two}, {one}' if one != three else f'"errors": [{two}, {one}, {three}'
    )
    assert swapped != found[0]
    path.write_bytes(lzma.compress(text.replace(found[0], swapped, 1).encode()))


def change_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("pattern", "damage", "said"),
    [
        ("runs.csv", change_text, "runs.csv is not what the batches give"),
        ("README.md", change_byte, "README.md is not what the batches give"),
        ("*.xz", change_batches, "is not the file that was written"),
        ("*.xz", change_byte, "is no whole .xz file"),
        ("*.xz", Path.unlink, "runs.csv is not what the batches give"),
    ],
)
def test_a_changed_byte_is_refused(
    packed: Path, tmp_path: Path, pattern: str, damage: Callable[[Path], None], said: str
) -> None:
    [path] = packed.glob(pattern)
    damage(path)
    with pytest.raises(Damaged, match=said):
        unpack(tmp_path / "results", packed)
    assert not (tmp_path / "results").exists()


def test_entropies_stay_by_batch_only_where_they_are_drawn_so(
    made: Settings, packed: Path, tmp_path: Path
) -> None:
    unpack(tmp_path / "results", packed)
    original = {run.request: run for run in Store(made.results_path).runs()}
    for run in Store(tmp_path / "results").runs():
        before = original[run.request].batches
        by_batch = run.method in ("adabn", "cascade")
        varied = run.batches.groupby("step")["entropy_main"].nunique().min() > 1
        assert varied == by_batch
        assert by_batch != ("means by domain" in str(run.provenance.filed))
        means = [
            (each["entropy_main"] * each["count"]).groupby(each["step"]).sum()
            for each in (before, run.batches)
        ]
        np.testing.assert_allclose(*means, rtol=1e-4)
        assert run.batches["errors"].equals(before["errors"])


def test_methods_whose_entropies_stay_may_be_named_one_by_one(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "results")
    points = [point for point in points_of(settings, ["main_image"]) if point.method != "cotta"]
    for run in made_up_runs(settings, lambda *asked: Numbers((2,) * 12), points, (0,)):
        keep(Store(settings.results_path), run)
    folder = tmp_path / "packed"
    named = ["--by-batch", "tent", "--by-batch", "erm"]
    main(["pack", str(settings.results_path), "--folder", str(folder), *named])
    table = pd.read_csv(folder / "runs.csv")
    assert set(table.loc[table["entropies"] == "by batch", "method"]) == {"tent", "erm"}


def test_beside_an_entry_of_another_version_nothing_is_written(
    made: Settings, packed: Path
) -> None:
    [path] = packed.glob("*.xz")
    text = lzma.decompress(path.read_bytes()).decode()
    older = text.replace('"order_seed"', '"seed_of_order"', 1)
    path.unlink()
    (packed / file_name(older)).write_bytes(lzma.compress(older.encode()))
    files = {path.name: path.read_bytes() for path in packed.iterdir()}
    changed = [line for line in older.splitlines() if '"seed_of_order"' in line]
    assert len(changed) == 1
    with pytest.raises(Damaged, match="is of another version"):
        pack([settings_of_one_more_seed(made)], packed)
    assert {path.name: path.read_bytes() for path in packed.iterdir()} == files


def settings_of_one_more_seed(made: Settings) -> Path:
    """A results folder beside that of `made`, with one run that is not packed."""
    later = settings_in(made.results_path.with_name("one-more"))
    points = points_of(later, ["main_image"])[:1]
    [run] = made_up_runs(later, lambda *asked: Numbers((1,) * 12), points, (7,))
    keep(Store(later.results_path), run)
    return later.results_path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["unpack"], "unpack needs one results folder"),
        (["pack", "nowhere"], "nowhere is no folder"),
        (["check", "--folder", "nowhere"], "nowhere/runs.csv is not what the batches give"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    told = capsys.readouterr()
    assert stopped.value.code == 2 and not told.out
    assert told.err.startswith(f"pack_runs: {said}") and told.err.count("\n") == 1


def test_the_committed_runs_are_as_they_were_written() -> None:
    if not FOLDER.exists():
        pytest.skip("no run is committed")
    assert check() > 0
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 10_000_000
