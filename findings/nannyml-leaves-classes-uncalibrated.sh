#!/usr/bin/env bash
# nannyml 0.13.1 with scikit-learn 1.9.1: CBPE estimates the accuracy without labels, as the mean
# probability of the predicted classes, after it has calibrated the probabilities on a reference.
# Expected: on data without any shift it finds the reference's accuracy, also for an overconfident
# network, and the more nearly the more reference there is; no alert.
# Seen for logits that are twice too large, 5,000 new examples from the reference's distribution,
# in chunks of 500:
#   classes  reference  accuracy  mean confidence   CBPE   alerts  classes left as they were
#        10       5000     0.818            0.908   0.834       0    0
#        30       5000     0.756            0.881   0.805       0    7
#       100       5000     0.700            0.852   0.782      10   43
#       100      10000     0.705            0.852   0.789      10   49
# One temperature, fitted to the same reference, gives 0.822, 0.768, 0.698 and 0.704.
# CBPE decides for each class whether isotonic regression makes the error of that class against
# all others smaller. For a rare class nearly all bins of that error hold probabilities near 0, so
# the few confident ones count little, and many classes keep their overconfident probability; then
# all are divided by their sum, which favours those. Isotonic regression of every class would still
# say 0.729 for 100 classes. So the monitor sounds on an unchanged stream, since its estimate is too
# good, and a true loss of eight points would look like none.
# Limits: logits and labels drawn at random, so that one temperature is the truth; the default
# calibrator. The appendix of its page says that some classes might get calibrated and others not;
# the page calls the estimate unbiased where scores can be calibrated and P(Y|X) stays.
# Where the field meets it: estimated accuracy along a stream of CIFAR-100 or ImageNet-C, as an
# alarm or to choose between adapted networks.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --no-deps --target "$folder" nannyml==0.13.1 \
  numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 pandas==3.1.1 statsmodels==0.15.0 patsy==1.0.3 \
  joblib==1.6.0 cloudpickle==3.1.3 threadpoolctl==3.8.0 narwhals==2.29.0 packaging==26.4 \
  python-dateutil==2.9.0.post0 six==1.17.0 typing-extensions==4.16.0 plotly==5.24.1 \
  tenacity==9.2.1 matplotlib==3.11.2 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 \
  kiwisolver==1.5.1 pillow==13.0.0 pyparsing==3.3.3 seaborn==0.13.2 category-encoders==2.11.2 \
  flaml==2.8.0 lightgbm==4.5.0 xgboost==2.1.4 fsspec==2026.9.0 rich==15.0.0 \
  markdown-it-py==4.3.0 mdurl==0.1.2 pygments==2.21.0 segment-analytics-python==2.4.0 \
  requests==2.34.2 urllib3==2.8.0 idna==3.20 certifi charset-normalizer==3.5.3 \
  pyjwt==2.15.1 python-dotenv==1.2.4
NML_DISABLE_USAGE_LOGGING=1 PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import numpy as np
import pandas as pd
from nannyml.calibration import NoopCalibrator
from nannyml.performance_estimation.confidence_based import CBPE
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

NEW, CHUNK = 5000, 500


def draw(generator, count, classes):
    """Return a network's logits, which are twice as large as they should be, and labels."""
    logits = 6 * generator.normal(size=(count, classes))
    levels = generator.random((count, 1))
    return 2 * logits, (softmax(logits, axis=1).cumsum(axis=1) > levels).argmax(axis=1)


def table(logits, labels):
    probabilities = pd.DataFrame(softmax(logits, axis=1)).add_prefix("p")
    return probabilities.assign(label=labels, prediction=logits.argmax(axis=1))


def estimate(reference, new, classes):
    """Return CBPE's mean accuracy, its number of alerts and that of uncalibrated classes."""
    estimator = CBPE(
        problem_type="classification_multiclass",
        y_pred_proba={label: f"p{label}" for label in range(classes)},
        y_pred="prediction",
        y_true="label",
        metrics=["accuracy"],
        chunk_size=CHUNK,
    )
    estimator.fit(reference)
    result = estimator.estimate(new.drop(columns="label")).filter(period="analysis").to_df()
    kept = sum(isinstance(one, NoopCalibrator) for one in estimator._calibrators.values())
    return result["accuracy", "value"].mean(), int(result["accuracy", "alert"].sum()), kept


def by_temperature(logits, labels, new):
    """Return the mean confidence for new logits by the temperature of the least loss."""
    rows = np.arange(len(labels))

    def loss(scale):
        return -log_softmax(scale * logits, axis=1)[rows, labels].mean()

    scale = minimize_scalar(loss, bounds=(0.1, 3), method="bounded").x
    return softmax(scale * new, axis=1).max(axis=1).mean()


seen = {}
for classes, count in ((10, 5000), (30, 5000), (100, 5000), (100, 10000)):
    generator = np.random.default_rng(0)
    reference, new = draw(generator, count, classes), draw(generator, NEW, classes)
    true = (new[0].argmax(axis=1) == new[1]).mean()
    value, alerts, kept = estimate(table(*reference), table(*new), classes)
    scaled = by_temperature(*reference, new[0])
    seen[classes, count] = value - true, scaled - true, alerts, kept
    confidence = softmax(new[0], axis=1).max(axis=1).mean()
    print(classes, count, f"accuracy {true:.3f}, confidence {confidence:.3f}, CBPE {value:.3f},")
    print(f"  {alerts} alerts of 10, {kept} classes uncalibrated, by one temperature {scaled:.3f}")

assert all(abs(scaled) < 0.015 for _, scaled, _, _ in seen.values())
assert 0 < seen[10, 5000][0] < 0.02 and seen[10, 5000][2:] == (0, 0)
assert seen[30, 5000][0] > 0.04 and seen[30, 5000][3] > 0
assert seen[100, 5000][0] > 0.07 and seen[100, 5000][3] > 30
assert seen[100, 5000][2] == 10
assert seen[100, 10000][0] > 0.06 and seen[100, 10000][3] > 20
CODE
