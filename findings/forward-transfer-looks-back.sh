#!/usr/bin/env bash
# continuum 1.2.7: the forward transfer of its Logger is the accuracy on tasks of the past, and its measures of
# forgetting leave out the task before the present one.
# Expected, by the papers its docstrings name (GEM, RWalk, Diaz-Rodriguez): a learner that after each task is
# right on that task alone, R = I, has backward transfer -1, forgetting 1, remembering 0 and forward
# transfer 0. One that keeps all it learned and knows nothing of the future has 0, 0, 1 and forward transfer 0.
# One that is right on this task and all to come has forward transfer 1 (less the start's accuracy, for GEM).
# Seen: the second has forward transfer 1 and the third 0, as R[i, j] is summed for j < i. The first has
# backward transfer and forgetting 0 and remembering 1 for two tasks, -1/3, 1/2 and 2/3 for three, and
# -0.87, 0.93 and 0.13 for fifteen: the task just before is left out of the sum, and stays in the divisor.
# Limits: the release; the repository, of the same version number, has been corrected since. Read before the
# last end_task, as its documentation does. Where the field meets it: forgetting along a stream of domains.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --target "$folder" torch==2.14.1 torchvision==0.29.1 numpy==2.4.6 \
  pillow==13.0.0 scipy==1.17.1 scikit-learn==1.9.1 scikit-image==0.26.0 pandas==3.1.1 matplotlib==3.11.2 \
  h5py==3.16.0 requests==2.34.2 ImageHash==4.3.2 datasets==5.2.0
# its requirements name its linters too
python3 -m pip install --quiet --no-compile --target "$folder" --no-deps continuum==1.2.7
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import numpy as np
from continuum.metrics import Logger

MEASURES = ("forward_transfer", "backward_transfer", "forgetting", "remembering")
LEARNERS = {
    "knows this task alone": np.eye,
    "keeps all, nothing of the future": lambda count: np.tril(np.ones((count, count))),
    "knows this task and the future": lambda count: np.triu(np.ones((count, count))),
}


def measure(right):
    """Return continuum's measures where right[i, j] says if task j is right after task i."""
    logger = Logger(list_subsets=["test"])
    for i, of_tasks in enumerate(right):
        if i:
            logger.end_task()
        for j, known in enumerate(of_tasks):
            labels = np.zeros(10, dtype=int)
            logger.add([labels if known else labels + 1, labels, np.full(10, j)], subset="test")
    return tuple(round(float(getattr(logger, name)), 2) for name in MEASURES)


print("tasks, learner:", ", ".join(MEASURES))
seen = {}
for count in (2, 3, 15):
    for name, make in LEARNERS.items():
        seen[count, name] = measure(make(count))
        print(f"{count}, {name}: {seen[count, name]}")
for count, forgets in {2: (0, 0, 1), 3: (-0.33, 0.5, 0.67), 15: (-0.87, 0.93, 0.13)}.items():
    assert seen[count, "knows this task alone"] == (0, *forgets)
    assert seen[count, "keeps all, nothing of the future"] == (1, 0, 0, 1)
    assert seen[count, "knows this task and the future"][0] == 0
CODE
