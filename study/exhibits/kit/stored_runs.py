"""Read the stored runs that a profile asks for, as one tidy table for an exhibit."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path

import pandas as pd

from cascadetta_lib.data import DatasetName
from cascadetta_lib.data.base import Modality
from cascadetta_lib.evaluation.metrics import (
    Transfer,
    average_accuracy,
    forward_transfers,
    mean_online_error,
)
from cascadetta_lib.methods import METHODS
from study.exhibits.kit.points import Point
from study.networks_from_files import network_origin
from study.published_networks import NetworkError
from study.requests import RunRequest, code_of_run
from study.settings import Settings
from study.shipped_networks import SHIPPED
from study.store import CHECKSUMS, Run, read_run
from study.study import Study
from study.weights_name import WeightsName

TRANSFERS: dict[str, Transfer] = {"F": "paper", "F_final": "final", "F_unadapted": "unadapted"}
METRICS = ("E", "A", *TRANSFERS)
"""Online error and average accuracy, in percent, and forward transfer by three definitions, in
points.
"""


def by_label(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of each label of a `Runs.frame`, in the order in which labels first come."""
    return {str(label): rows for label, rows in frame.groupby("label", sort=False)}


class Runs:
    """The stored runs of one dataset that a profile asks for, whichever profile made them.

    The files behind a dataset's name may change. For each choice of the dataset's options (except
    `test_size`, which does not change what a network learns from), `frame` has runs on one state of
    the data: the state that `Store.remember_data` noted last if there is a run on it, or else the
    state of the newest run. For each method and each origin of the network (trained here, shipped,
    published, …), `frame` has runs by one state of the code: today's if there is a run by it, or
    else the state that made the newest run. `aside` says which runs are left out.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self.settings = study.settings
        self.modality = study.modality
        self.dataset_name = study.dataset_name
        self._metrics: dict[RunRequest, dict[str, float]] = {}
        self._codes: dict[tuple[str, str], str | None] = {}

    @classmethod
    def of(cls, study: Study, made: Iterable[Run]) -> "Runs":
        """Return a reader of these runs of a study, whatever other runs are stored."""
        runs = cls(study)
        runs.stored = list(made)
        return runs

    @classmethod
    def of_settings(
        cls,
        settings: Settings,
        modality: Modality = "image",
        dataset_name: DatasetName | None = None,
    ) -> "Runs":
        """Return a reader of the stored runs of one dataset of a profile.

        dataset_name: the dataset; None if the profile names only one.
        """
        if dataset_name is not None:
            settings = settings.vary(modality, {"dataset": str(dataset_name)})
        return cls(Study.without_device(settings, modality))

    @cached_property
    def stored(self) -> list[Run]:
        """Every run of this dataset in the store."""
        dataset = self.dataset_name.key

        def read(folder: Path) -> Run | None:
            return _read(folder, (folder / CHECKSUMS).read_bytes(), self.modality, dataset)

        return list(self.study.store.read_runs(read))

    def frame(self, points: Sequence[Point], seeds: Iterable[int] | None = None) -> pd.DataFrame:
        """Return a row per stored run of the points, by point and seed. The columns:

        label, method, variant, objective, seed.
        network: the weights. Runs of one objective on the same weights have the same text.
        current: whether today's code made the run (see `is_current`).
        every parameter that one of the points changes.
        the METRICS: NaN if one was not measured.
        run: the run itself.

        seeds: the seeds to read; None: every seed in the store.

        Raises ValueError if two methods have the same label.
        """
        check_labels(points)
        names = list(dict.fromkeys(name for point in points for name in point.changes))
        rows = []
        for point in points:
            for run in self._find(point, seeds):
                row = {
                    "label": point.label,
                    "method": point.method,
                    "variant": point.variant,
                    "objective": run.request.checkpoint.objective,
                    "seed": run.seed,
                    "network": weights_of(run),
                    "current": self.is_current(run),
                    **point.changes,
                    **self._measured(run),
                    "run": run,
                }
                rows.append(row)
        about = ["label", "method", "variant", "objective", "seed", "network", "current"]
        return pd.DataFrame(rows, columns=[*about, *names, *METRICS, "run"])

    def missing(self, points: Sequence[Point], seeds: Sequence[int]) -> list[str]:
        """Return one line, in a list, that says which runs of these points at these seeds the store
        lacks. The list is empty if no run is missing.
        """
        if not points:
            return [
                "Not asked for: the profile has none of the methods of this exhibit, or none of "
                "its networks is there."
            ]
        lacking = [
            (point, seed)
            for point in points
            for seed in seeds
            if not self._find(point, [seed], whole=True)
        ]
        if not lacking:
            return []
        count = len(points) * len(seeds)
        in_part = [run for point, seed in lacking for run in self._find(point, [seed])]
        if len(lacking) == count and not in_part:
            return [f"Missing: none of its {count} runs is stored."]
        told = f"{len(lacking)} of {count} runs are missing"
        if in_part:
            beside = "F"
            if any(point.changes.get("source_agreement") for point, _ in lacking):
                beside = "F or the agreement with the source"
            told += f" or incomplete (stored, but without {beside}: {len(in_part)})"
        first = dict.fromkeys(f"{point.label} (seed {seed})" for point, seed in lacking[:4])
        return [f"Partial: {told}, such as {', '.join(first)}."]

    def aside(self, points: Sequence[Point]) -> list[str]:
        """Return warnings about stored runs of these points: which runs are not shown, and which of
        the shown runs were made by an earlier code.
        """
        asked = {
            request.fullest for point in points for request in self._requests(point, self._seeds)
        }
        found = [run for run in self.stored if run.request.fullest in asked]
        shown = [run for run in found if self._by_request.get(run.request) is run]
        if not shown:
            return []
        shown_data = {_data(run) for run in shown}
        on_data = [run for run in found if _data(run) in shown_data]
        on_others = [run for run in found if _data(run) not in shown_data]
        notices = [
            self._other_data(on_others, shown),
            _other_code(on_data, shown),
            self._older_code(shown),
        ]
        return [notice for notice in notices if notice]

    def _other_data(self, on_others: Sequence[Run], shown: Sequence[Run]) -> str:
        """Say how many runs are on data that are not shown; empty if there are none."""
        if not on_others:
            return ""
        fingerprints = ", ".join(sorted({run.provenance.fingerprint for run in on_others}))
        return (
            f"**The data called {self.dataset_name} have changed:** {len(on_others)} stored runs "
            f"are on another state of the data ({fingerprints}) and are not shown. The runs that "
            f"are shown are on {shown[0].provenance.fingerprint}."
        )

    def _older_code(self, shown: Sequence[Run]) -> str:
        """Say which methods have shown runs by an earlier code; empty if there are none."""
        old = {
            METHODS[run.method].label
            for run in shown
            if code(run) is not None and not self.is_current(run)
        }
        if not old:
            return ""
        return (
            "Made by an earlier state of the code (method, evaluator, data or training) than "
            f"today's: {', '.join(sorted(old))}."
        )

    def history(self, run: Run) -> pd.DataFrame | None:
        """Return the training history of the run's network, a row per epoch; None if it is not
        known.
        """
        asked = run.request.checkpoint
        path = SHIPPED / f"{asked.objective}-{asked.seed}.csv"
        if asked.weights_kind != "shipped" or not path.exists():
            return self.study.store.history(run)
        if network_origin(WeightsName("shipped"), asked.objective, asked.seed) != asked.weights:
            return None
        return pd.read_csv(path)

    def histories(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the training histories of the networks behind a `frame`, a row per epoch.

        The columns are label, objective, seed, classes, and those of pretrain's history. Networks
        without a known history are left out.
        """
        found = []
        for row in frame.drop_duplicates(["label", "objective", "seed"]).to_dict("records"):
            history = self.history(row["run"])
            if history is not None:
                named = {name: row[name] for name in ("label", "objective", "seed")}
                classes = len(row["run"].provenance.class_names)
                found.append(history.assign(**named, classes=classes))
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    def is_current(self, run: Run) -> bool:
        """Return whether today's code made a run (requests.code_of_run). The code is hashed once
        per method and kind of network.
        """
        kind = _what_code_depends_on(run)
        if kind not in self._codes:
            known = run.method in set(METHODS)
            self._codes[kind] = code_of_run(run.request) if known else None
        return self._codes[kind] is not None and code(run) == self._codes[kind]

    @property
    def of_one_state(self) -> list[Run]:
        """The stored runs on the state of data and code that exhibits show."""
        return list(self._by_request.values())

    @cached_property
    def _by_request(self) -> dict[RunRequest, Run]:
        """The runs on the state of data and code that is shown, by their request."""

        def precedence(run: Run) -> tuple[bool, str]:
            noted = self.study.store.data_at_hand(run.request.checkpoint)
            return _data(run) == noted, run.provenance.finished

        # In each dictionary below a later run replaces an earlier one.
        ordered = sorted(self.stored, key=precedence)
        last_data = {_options(run): _data(run) for run in ordered}
        on_data = [run for run in ordered if _data(run) == last_data[_options(run)]]
        newest_code = {_what_code_depends_on(run): code(run) for run in on_data}
        todays_code = {
            _what_code_depends_on(run): code(run) for run in on_data if self.is_current(run)
        }
        chosen = newest_code | todays_code
        return {
            run.request: run for run in on_data if code(run) == chosen[_what_code_depends_on(run)]
        }

    @cached_property
    def _by_stream(self) -> dict[RunRequest, list[Run]]:
        """The runs of `_by_request`, in groups. The runs of one group differ only in what they
        measure besides E and A.
        """
        found = defaultdict[RunRequest, list[Run]](list)
        for request, run in self._by_request.items():
            found[request.fullest].append(run)
        return found

    @cached_property
    def _seeds(self) -> list[int]:
        return sorted({run.seed for run in self.stored})

    def _requests(self, point: Point, seeds: Iterable[int]) -> Iterator[RunRequest]:
        """Yield the request of a point for each seed, except for seeds whose network is missing."""
        varied = self.study.varied(**point.changes) if point.changes else self.study
        for seed in sorted(set(seeds)):
            with suppress(NetworkError):
                yield varied.at_seed(seed).request(point.method, point.objective)

    def _find(self, point: Point, seeds: Iterable[int] | None, *, whole: bool = False) -> list[Run]:
        """Return the stored runs of a point, at most one per seed.

        A run with F, or with the agreement with the source, also serves a point that does not ask
        for them. If `whole` is false, a run without them also serves a point that asks for them.
        """
        runs = []
        for request in self._requests(point, self._seeds if seeds is None else seeds):
            stored = self._by_stream.get(request.fullest, [])
            serving = [run for run in stored if run.request.covers(request)]
            if not serving and not whole:
                serving = stored
            if serving:
                runs.append(max(serving, key=lambda run: run.request.measured_beside))
        return runs

    def _measured(self, run: Run) -> dict[str, float]:
        """Return the METRICS of a stored run. They are computed once per request."""
        if run.request not in self._metrics:
            transfers = forward_transfers(run.accuracies)
            values = {name: transfers[definition] for name, definition in TRANSFERS.items()}
            values["E"] = mean_online_error(run.batches)
            values["A"] = average_accuracy(run.accuracies)
            self._metrics[run.request] = {
                name: math.nan if value is None else 100 * value for name, value in values.items()
            }
        return self._metrics[run.request]


def check_labels(points: Sequence[Point]) -> None:
    """Raise ValueError if two methods have one label, and name both methods.

    With one label, their runs would be averaged as if they were seeds of one method. Points with a
    name of their own (`called`) are not checked: an exhibit may give several methods one such name,
    and then tells them apart itself, as `conditions` does with AdaBN and the cascade.
    """
    methods: dict[str, str] = {}
    for point in points:
        if point.called:
            continue
        other = methods.setdefault(point.label, point.method)
        if other != point.method:
            raise ValueError(
                f"the methods {other} and {point.method} have the same label {point.label!r}, so "
                "tables could not tell them apart: give one of them another `label`"
            )


def weights_of(run: Run) -> str:
    """Return an identifier of a run's weights: their hash, or the seed of their training here.

    A network that was brought or published has one identifier for all seeds that ran on it.
    """
    asked = run.request.checkpoint
    if asked.weights == "train":
        return f"trained here at seed {asked.seed}"
    network = run.provenance.network
    return (network and network.sha256) or asked.weights


def code(run: Run) -> str | None:
    """Return the state of the code that made a run; None if it is not on record."""
    return run.provenance.code or None


def _what_code_depends_on(run: Run) -> tuple[str, str]:
    """Return what a code hash depends on, besides the modality: the method, and the kind of
    weights.
    """
    return run.method, run.request.checkpoint.weights_kind


@cache
def _read(folder: Path, checksums: bytes, modality: Modality, dataset: str) -> Run | None:
    """Return the run in `folder`, or None if it is of another dataset.

    A process reads a run only once as long as the entry's checksums stay the same.
    """

    def wanted(request: RunRequest) -> bool:
        asked = request.checkpoint
        return (asked.modality, asked.dataset) == (modality, dataset)

    return read_run(folder, wanted)


def _data(run: Run) -> tuple[str, str]:
    """Return what identifies a run's data: their fingerprint, and the source of the domains."""
    return run.provenance.fingerprint, run.provenance.domain_source


def _options(run: Run) -> str:
    """Return the options of a run's dataset that change what a network is trained on."""
    return str(run.request.checkpoint.options)


def _other_code(on_data: Sequence[Run], shown: Sequence[Run]) -> str:
    """Say how many runs on the data shown are by a code that is not shown; empty if none is."""
    shown_codes = {(run.method, code(run)) for run in shown}
    others = [run for run in on_data if (run.method, code(run)) not in shown_codes]
    if not others:
        return ""
    names = ", ".join(sorted({METHODS[run.method].label for run in others}))
    return (
        f"**Several states of the code made the stored runs:** {len(others)} runs of {names} are "
        "not shown. They were made by another state of the code than the runs that are shown."
    )
