#!/usr/bin/env bash
# river 0.26.1, frouros 0.9.0 and menelaus 0.2.0: asked for the same ADWIN, Page-Hinkley or DDM, they sound at
# unlike times. The stream: errors 0 and 1 at a rate of 0.2, which becomes 0.5 after 1,000 or 20,000 examples.
# Expected: with equal settings (ADWIN delta 0.002, looked at each 32 examples; Page-Hinkley delta 0.005,
# threshold 50, no forgetting; DDM 2 and 3) three packages sound within some examples of each other.
# Seen: the median delay in examples over ten streams, and (in all ten) how often it sounded before the change:
#                   after 1,000                                 after 20,000
#                   river       menelaus    frouros             river       menelaus     frouros
#   ADWIN           103 (0)     103 (0)     199 (0)             63 (0)      63 (0)       639 (0)
#   Page-Hinkley    154 (0)     37 (10)     200 (0)             138 (0)     26 (202)     574 (0)
#   DDM             86 (3)      32 (34)     86 (3)              438 (4)     24 (568)     438 (4)
# menelaus multiplies Page-Hinkley's threshold by the mean of the stream, and its DDM takes a root of the
# running variance at each step and compares with the present deviation, not the least one, against its
# docstring. frouros subtracts no minimum from Page-Hinkley's sum, so that the sum sinks by delta with each
# quiet example; and its ADWIN leaves the newest bucket of each size in the newer window.
# Limits: the settings above. Where the field meets it: when an alarm resets an adapted network.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# frouros wants an older NumPy than river
python3 -m pip install --quiet --no-compile --target "$folder/river" river==0.26.1 numpy==2.4.6 scipy==1.17.1
python3 -m pip install --quiet --no-compile --target "$folder/others" frouros==0.9.0 menelaus==0.2.0 numpy==2.1.3 \
  scipy==1.14.1 pandas==2.3.3 scikit-learn==1.7.2 matplotlib==3.9.4 requests==2.32.5
cat >"$folder/streams.py" <<'CODE'
import json
import random
import statistics
import sys


def of_river(detector):
    return lambda error: (detector.update(error), detector.drift_detected)[1]


def of_frouros(detector):
    def sounds(error):
        if detector.drift:
            detector.reset()
        detector.update(value=error)
        return detector.drift

    return sounds


def of_menelaus(detector, labels=False):
    def sounds(error):
        if labels:
            detector.update(y_true=0, y_pred=error)
        else:
            detector.update(float(error))
        return detector.drift_state == "drift"

    return sounds


def makers(package):
    """Return, by name, functions that make a function from an error to whether the detector sounds."""
    if package == "river":
        from river.drift import ADWIN, PageHinkley
        from river.drift.binary import DDM

        hinkley = {"min_instances": 30, "delta": 0.005, "threshold": 50, "alpha": 1.0, "mode": "up"}
        ddm = {"warm_start": 30, "warning_threshold": 2.0, "drift_threshold": 3.0}
        return {
            "ADWIN": lambda: of_river(ADWIN(delta=0.002, clock=32)),
            "Page-Hinkley": lambda: of_river(PageHinkley(**hinkley)),
            "DDM": lambda: of_river(DDM(**ddm)),
        }
    if package == "frouros":
        from frouros.detectors import concept_drift as f

        hinkley = {"min_num_instances": 30, "delta": 0.005, "lambda_": 50, "alpha": 1.0}
        ddm = {"min_num_instances": 30, "warning_level": 2.0, "drift_level": 3.0}
        return {
            "ADWIN": lambda: of_frouros(f.ADWIN(f.ADWINConfig(delta=0.002, clock=32))),
            "Page-Hinkley": lambda: of_frouros(f.PageHinkley(f.PageHinkleyConfig(**hinkley))),
            "DDM": lambda: of_frouros(f.DDM(f.DDMConfig(**ddm))),
        }
    from menelaus.change_detection import ADWIN, PageHinkley
    from menelaus.concept_drift import DDM

    return {
        "ADWIN": lambda: of_menelaus(ADWIN(delta=0.002, new_sample_thresh=32)),
        "Page-Hinkley": lambda: of_menelaus(PageHinkley(burn_in=30, delta=0.005, threshold=50)),
        "DDM": lambda: of_menelaus(DDM(n_threshold=30, warning_scale=2, drift_scale=3), labels=True),
    }


found = {}
for package in sys.argv[1:]:
    for name, make in makers(package).items():
        for quiet in (1000, 20000):
            delays, early = [], 0
            for seed in range(10):
                draw, sounds = random.Random(seed), make()
                for i in range(quiet + 3000):
                    if sounds(int(draw.random() < (0.2 if i < quiet else 0.5))):
                        if i >= quiet:
                            delays.append(i - quiet)
                            break
                        early += 1
                else:
                    delays.append(3000)
            found[f"{name} {quiet} {package}"] = statistics.median(delays), early
print(json.dumps(found))
CODE
PYTHONPATH=$folder/river python3 -W ignore "$folder/streams.py" river >"$folder/river.json"
PYTHONPATH=$folder/others python3 -W ignore "$folder/streams.py" frouros menelaus >"$folder/others.json"
python3 - "$folder/river.json" "$folder/others.json" <<'CODE'
import json
import sys

found = {}
for path in sys.argv[1:]:
    with open(path) as file:
        found |= json.load(file)
for name in sorted(found):
    print(f"{name}: median delay {found[name][0]}, sounded before the change {found[name][1]}")
assert found == {
    "ADWIN 1000 river": [103.0, 0],
    "ADWIN 1000 menelaus": [103.0, 0],
    "ADWIN 1000 frouros": [199.0, 0],
    "ADWIN 20000 river": [63.0, 0],
    "ADWIN 20000 menelaus": [63.0, 0],
    "ADWIN 20000 frouros": [639.0, 0],
    "Page-Hinkley 1000 river": [154.5, 0],
    "Page-Hinkley 1000 menelaus": [37.0, 10],
    "Page-Hinkley 1000 frouros": [200.5, 0],
    "Page-Hinkley 20000 river": [138.0, 0],
    "Page-Hinkley 20000 menelaus": [25.5, 202],
    "Page-Hinkley 20000 frouros": [573.5, 0],
    "DDM 1000 river": [86.5, 3],
    "DDM 1000 menelaus": [32.5, 34],
    "DDM 1000 frouros": [86.5, 3],
    "DDM 20000 river": [437.5, 4],
    "DDM 20000 menelaus": [23.5, 568],
    "DDM 20000 frouros": [437.5, 4],
}
CODE
