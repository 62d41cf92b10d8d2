"""What is left to do, in hours of a CPU core and GB: images that are counted, times rates that were measured."""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from cascadetta_lib.data.corruptions import HELD_OUT_CORRUPTIONS
from cascadetta_lib.methods import METHODS
from cascadetta_lib.models import ImageNetwork, build_network
from cascadetta_lib.training.objectives import OBJECTIVES
from study.exhibits import EXHIBITS
from study.exhibits.beyond.cascade_plus import choice
from study.exhibits.kit.runs import Runs
from study.settings import Settings
from study.store import CheckpointRequest, RunRequest
from study.study import Study
from study.weights import NetworkError
from study.workflow.notebooks import code_cells

# Milliseconds of CPU time of one thread (an AMD EPYC with AVX-512) for an image of ResNet-26 in float32, 32 × 32 pixels
# in batches of 32 (training: 200), as benchmarks/speed.py runs them. Other networks count by their multiplications.
FORWARD = 1.2
UPDATE = {
    "erm": 1.2,
    "adabn": 1.2,
    "tent": 2.9,
    "tent_adam": 2.9,
    "cascade": 3.0,
    "cascade_fixed_classifier": 2.9,
}
UPDATE |= {
    "cascade_no_auxiliary": 2.8,
    "cascade_same_weights": 2.9,
    "cascade_plus": 4.9,
    "ttt": 3.3,
    "cotta": 35.0,
}
META, ROTATION, PLAIN = 5.8, 6.9, 4.0
SIZES = {
    "cifar10": (50_000, 10_000, 32),
    "cifar100": (50_000, 10_000, 32),
    "tiny_imagenet": (100_000, 10_000, 64),
}
"""Source images, images of a domain, pixels of a side."""


@cache
def multiplications(network: ImageNetwork, pixels: int) -> int:
    """Those of one image on its way forward."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = build_network(
            network, classes=10, architecture="resnet34" if pixels > 32 else None, seed=0
        )
        model.eval()(torch.zeros(1, 3, pixels, pixels))
    return counter.get_total_flops()


def asked_for(job: dict[str, Any], settings: Settings) -> Iterator[CheckpointRequest | RunRequest]:
    """The networks and runs of images that a job asks for."""
    here = settings.model_copy(update={"seed": job["axes"].get("seed", settings.seeds[0])})
    study = Study(here.vary("image", {"dataset": job["axes"]["image_dataset"]}))
    source = "\n".join(cell["source"] for cell in code_cells(Path(job["path"])))
    if "study.checkpoint(objective)" in source:
        with suppress(NetworkError):  # which is told when the run is checked
            yield from map(study.checkpoint_request, study.objectives)
    for exhibit in (EXHIBITS[name] for name in re.findall(r'exhibits\.make\("(\w+)"', source)):
        if exhibit.made_on(study.dataset_name) and here.seed in exhibit.seeds(settings):
            for point in exhibit.points(study.settings):
                with suppress(NetworkError):  # the job leaves it out as well
                    run = study.varied(**point.changes).request(point.method, point.objective)
                    yield from (run.checkpoint, run)


def images_of(request: RunRequest) -> int:
    """Of each domain: test images, or held-out source images where the corruptions are those that no test has."""
    source, target, _ = SIZES[request.checkpoint.dataset]
    if request.stream[0].name in HELD_OUT_CORRUPTIONS:
        options = request.checkpoint.options
        target = round(
            min(source, int(options["train_size"] or source))
            * float(options["held_out_fraction"] or 0)
        )
    return min(request.test_size or target, target)


def hours(request: CheckpointRequest | RunRequest) -> float:
    """Of one CPU core; KeyError with what has no measured rate."""
    asked = request.checkpoint if isinstance(request, RunRequest) else request
    source, target, pixels = SIZES[asked.dataset]
    if asked.network is None and not asked.weights.startswith(("shipped:", "release:")):
        raise KeyError(asked.weights.partition(":")[0])
    network = asked.network if isinstance(asked.network, ImageNetwork) else ImageNetwork()
    seen = 224 if asked.dataset == "tiny_imagenet" else pixels
    hour = multiplications(network, seen) / multiplications(ImageNetwork(), 32) / 3.6e6
    if isinstance(request, RunRequest):
        images, domains = images_of(request), len(request.stream)
        # E, and for F each domain alone; A, and for F after each domain, of the source and alone. What has no state
        # predicts a domain once.
        adapts = METHODS[request.method].adapts
        updates, forwards = domains, domains if adapts or request.statistics_memory else 0
        if adapts and request.forward_transfer and request.order != "mixed":
            updates, forwards = 2 * domains - 1, 4 * domains - 3
        return hour * images * (updates * UPDATE[request.method] + forwards * FORWARD)
    if not request.training:
        return 0
    kind, training = OBJECTIVES[request.objective], request.training
    share = 1 - float(request.options["held_out_fraction"] or 0)
    in_epochs = (
        share * min(source, int(request.options["train_size"] or source)) * (training.epochs or 0)
    )
    counted = training.training_batch_size * (training.iterations or 0)
    each = META if kind.meta else ROTATION if kind.parallel else PLAIN
    return hour * (in_epochs + counted) * each * (2 if kind.randomised == "both" else 1)


def estimate(jobs: dict[str, Any], left: list[str], settings: Settings) -> Iterator[str]:
    """Lines on the jobs that are `left`, without stored runs and their networks; what several jobs share is counted at
    the first of them."""
    unknown, pixels = set[str](), {name: 3 * side**2 for name, (_, _, side) in SIZES.items()}
    total, made, memory = dict[str, float](), dict[Any, int](), 0
    settings = settings.model_copy(update={"device": "cpu"})  # the jobs' own need not be here
    datasets = {
        job["axes"]["image_dataset"] for job in jobs.values() if "image_dataset" in job["axes"]
    }
    stored = [run.request for name in datasets for run in Runs(settings, "image", name).stored]
    seen: set[Any] = {*stored, *(request.checkpoint for request in stored)}
    for name, job in jobs.items():
        image = job["axes"].get("image_dataset")
        place = f"{job['notebook']} on {image}"
        unknown |= {
            axis
            for axis in job["axes"]
            if axis in ("text_dataset", "speech_dataset") and name in left
        }
        chooses = (
            image
            and job["chooses"]
            and EXHIBITS["choice"].made_on(image)
            and EXHIBITS["choice"].points(settings)
        )
        if chooses and name in left and choice(Runs(settings, "image", image)).empty:
            unknown.add(f"runs of {place} at rates that are yet to be chosen")
        for request in dict.fromkeys(asked_for(job, settings)) if image else ():
            serving = (
                {request, request.with_transfer} if isinstance(request, RunRequest) else {request}
            )
            if seen.isdisjoint(serving) and name in left:
                try:
                    total[place] = total.get(place, 0) + hours(request)
                except KeyError as error:
                    unknown.add(str(error.args[0]))
                if isinstance(request, RunRequest) and image in SIZES:
                    size = images_of(request) * pixels[image]
                    made |= {(image, domain, size): size for domain in request.stream}
                    memory = max(memory, size * len({*request.stream}))
            seen.add(request)
    yield from (f"{place}: {count:,.1f} core-hours" for place, count in total.items())
    yield f"in all {sum(total.values()):,.0f} core-hours of a CPU; on a GPU: not measured"
    yield f"{sum(made.values()) / 1e9:.1f} GB of disk for images of the domains, up to {memory / 1e9:.1f} GB in memory"
    if unknown:
        yield f"not in it, for want of a measured rate or a choice: {', '.join(sorted(unknown))}"
