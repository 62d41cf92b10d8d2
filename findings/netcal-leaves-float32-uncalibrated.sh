#!/usr/bin/env bash
# netcal 1.4.0 with torch 2.13.0 and SciPy 1.17.1: TemperatureScaling, LogisticCalibration and
# BetaCalibration of confidences in float32, the type of a network's softmax.
# Expected: the temperature that the same confidences give in float64, to three digits.
# Seen, for 2,000 images to fit and 2,000 others, whose logits are 2.5 times too large (NLL, ECE as
# netcal measures it, with 15 bins):
#                            ten classes, float32   float64         two classes, float32   float64
#   before                   1.914   0.262          1.914   0.262   ECE 0.109              0.109
#   TemperatureScaling       1.914   0.262          1.364   0.023       0.109              0.027
#   LogisticCalibration      1.914   0.262          1.369   0.024       0.109              0.035
#   BetaCalibration          2.599   0.344          1.371   0.030       0.109              0.029
#   HistogramBinning         1.574   0.036          1.574   0.036
# So in float32 the scaling methods keep the values at which they start, temperature 1, and nothing
# is raised or printed; the one warning, of pyro, comes in float64 too. BetaCalibration's start
# for more than two classes is not the identity, so it makes the confidences worse. scikit-learn's
# CalibratedClassifierCV (1.9.1, method "temperature") finds 2.38 from the float32 logits, as netcal
# does in float64.
# Probably because SciPy's minimize gets no gradient and takes differences over a step of some 1e-8,
# and netcal rounds each trial to the type of the data: in float32, 1 + 1e-8 is 1, the difference 0.
# Limits: method "mle", the default, the labels drawn from the probabilities at the temperature 2.5.
# Where the field meets it: a calibration error "after temperature scaling" on a shifted stream that
# is the one before. Confidences passed on as .astype("float64") mend it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --target "$folder" netcal==1.4.0 torch==2.13.0 \
  pyro-ppl==1.9.2 gpytorch==1.15.2 scipy==1.17.1 scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import contextlib
import io
import warnings

import numpy as np
import torch
from netcal.binning import HistogramBinning
from netcal.metrics import ECE
from netcal.scaling import BetaCalibration, LogisticCalibration, TemperatureScaling
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

HALF, TIMES = 2000, 2.5
SCALING = (TemperatureScaling, LogisticCalibration, BetaCalibration)
torch.manual_seed(0)
torch.set_num_threads(1)


class Logits(ClassifierMixin, BaseEstimator):
    """A classifier whose input are its logits."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, x):
        return x

    def predict(self, x):
        return x.argmax(1)


def calibrate(kind, kind_of_number, given, labels):
    """Return what netcal, fitted to the first half, makes of the other half, and what it says."""
    given = given.astype(kind_of_number)
    method = kind()
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        method.fit(given[:HALF], labels[:HALF])
        made = method.transform(given[HALF:]).astype("float64")
    return made, out.getvalue() + "".join(str(each.message) for each in warned)


def errors(made, labels):
    """Return the NLL (of ten classes) and the calibration error of the other half."""
    nll = float("nan")
    if made.ndim == 2:
        nll = -np.log(np.maximum(made[np.arange(HALF), labels[HALF:]], 1e-12)).mean()
    return np.array([nll, ECE(15).measure(made, labels[HALF:])])


def temperature(before, after):
    """Return the temperature that turns some confidences of ten classes into others."""
    odds = [np.log(table[:, 0] / table[:, 1]) for table in (before.astype("float64"), after)]
    return float(np.median(odds[0] / odds[1]))


logits = 2 * torch.randn(2 * HALF, 10)
labels = torch.distributions.Categorical(logits=logits).sample().numpy()
confidences = torch.softmax(TIMES * logits, 1).numpy()
assert confidences.dtype == np.float32
before = errors(confidences[HALF:].astype("float64"), labels)
print("ten classes, before", before.round(4))
seen, found, said = {}, {}, {}
for kind in (*SCALING, HistogramBinning):
    for number in ("float32", "float64"):
        made, said[number] = calibrate(kind, number, confidences, labels)
        seen[kind, number] = errors(made, labels)
        print("ten classes,", kind.__name__, number, seen[kind, number].round(4))
        if kind is TemperatureScaling:
            found[number] = temperature(confidences[HALF:], made)
    assert said["float32"] == said["float64"]
for kind in SCALING[:2]:
    assert np.abs(seen[kind, "float32"] - before).max() < 1e-4
assert (seen[BetaCalibration, "float32"] > before + 0.05).all()
for kind in SCALING:
    assert (seen[kind, "float64"] < [before[0] - 0.5, 0.04]).all()
binned = seen[HistogramBinning, "float32"] - seen[HistogramBinning, "float64"]
assert np.abs(binned).max() < 1e-3

network = FrozenEstimator(Logits().fit(None, labels))
other = CalibratedClassifierCV(network, method="temperature")
scores = (TIMES * logits).numpy()
other.fit(scores[:HALF], labels[:HALF])
made = other.predict_proba(scores[HALF:]).astype("float64")
found["scikit-learn"] = temperature(confidences[HALF:], made)
print("temperatures", found)
assert abs(found["float32"] - 1) < 1e-3
assert abs(found["float64"] - TIMES) < 0.2
assert scores.dtype == np.float32 and abs(found["scikit-learn"] - found["float64"]) < 0.01

margins = 2 * torch.randn(2 * HALF)
labels = torch.bernoulli(torch.sigmoid(margins)).long().numpy()
confidences = torch.sigmoid(TIMES * margins).numpy()
before = errors(confidences[HALF:].astype("float64"), labels)
print("two classes, before", before.round(4))
for kind in SCALING:
    values = {}
    for number in ("float32", "float64"):
        values[number] = errors(calibrate(kind, number, confidences, labels)[0], labels)[1]
    print("two classes,", kind.__name__, values)
    assert abs(values["float32"] - before[1]) < 1e-3 and values["float64"] < 0.5 * before[1]
CODE
