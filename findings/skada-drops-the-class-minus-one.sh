#!/usr/bin/env bash
# skada 0.6.0 with scikit-learn 1.9.1: a class of the label -1 is dropped, from training and from the
# score. Expected: labels are names, so -1, 0, 1 (negative, neutral, positive) give the classifier that
# 0, 1, 2 give; or an error, as -1 is also how skada marks rows of the target whose label is hidden.
# Seen: fit removes all rows of the label -1, also those of the source, and warns of nothing; and score
# removes the rows of the target whose true label is -1. So on three equal classes the pipeline never
# predicts -1, is right on 64 to 67 % of the targets, and scores 0.96 to 1.00.
# Limits: tried for make_da_pipeline with three classifiers of scikit-learn, alone and after
# CORALAdapter. Where the field meets it: sentiment in -1, 0, 1 and files of svmlight in -1, 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" skada==0.6.0 scikit-learn==1.9.1 numpy==2.4.6
PYTHONPATH=$folder python3 - <<'CODE'
import warnings

import numpy as np
import skada
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

warnings.simplefilter("error")  # a warning would fail this script
assert skada.__version__ == "0.6.0"
rng = np.random.default_rng(0)
classes = np.repeat([0, 1, 2], 100)
source = np.array([[-4, 0], [0, 4], [4, 0]])[classes] + rng.standard_normal((300, 2))
target = source + 0.5
x = np.concatenate([source, target])
domain = np.repeat([1, -2], 300)  # as skada has it: sources above 0, targets below

for names in ([0, 1, 2], [-1, 0, 1]):
    labels = np.array(names)[classes]
    y = np.concatenate([labels, labels])
    for kind in (LogisticRegression(), GaussianNB(), DecisionTreeClassifier(random_state=0)):
        for before in ([], [skada.CORALAdapter()]):
            pipe = skada.make_da_pipeline(*before, clone(kind)).fit(x, y, sample_domain=domain)
            predicted = pipe.predict(target)
            right = float(np.mean(predicted == labels))
            score = float(pipe.score(target, labels, sample_domain=domain[300:]))
            adapter = "CORAL, " if before else ""
            found = np.unique(predicted).tolist()
            print(f"{names} {adapter}{type(kind).__name__}: predicts {found}, right {right:.3f}, score {score:.3f}")
            if names == [0, 1, 2]:
                assert found == [0, 1, 2] and right == score > 0.9
            else:
                assert found == [0, 1] and right < 0.67 and score > 0.96
CODE
