#!/usr/bin/env bash
# torch-uncertainty 0.13.0 with torchmetrics 1.9.0, and pytorch-ood 0.4.0, with torch 2.14.1: the
# AUROC of detection by entropy. torch-uncertainty's ClassificationRoutine (eval_ood=True,
# ood_criterion="entropy") hands each batch of entropies to torchmetrics' BinaryAUROC.
# Expected: an AUROC depends on the order of the scores alone, so on no batch size, and both
# packages report what scikit-learn finds for all scores at once.
# Seen, for 1,280 images of ten known classes and 1,280 of unknown ones (AUROC, AUPR, FPR95):
#   scikit-learn, pytorch-ood            0.910   0.908   0.384
#   torch-uncertainty, batches of   16   0.975   0.962   0.384
#                                   64   0.982   0.965   0.384
#                                  256   0.960   0.944   0.384
#                                 1280   0.910   0.908   0.384
# BinaryAUROC takes scores outside [0, 1] for logits and replaces them by their sigmoid; it decides
# so for each update. A batch in which no entropy is above 1 nat keeps its entropies, near 0; one
# with a single uncertain image is moved to 0.5 and above as a whole. The known images, which have
# few uncertain ones, stay below. So entropy seems better than the energy score, which reports its
# true 0.925, and is worse.
# Limits: logits drawn at random. The scores of "msp" and "energy" are below 0 here, so each batch
# gets the sigmoid, and their AUROC is right. Each batch is of one kind, as the routine takes one
# loader for the known and one for the unknown. Upstream of torchmetrics has reports of the sigmoid
# per batch, and its page names the sigmoid; the docstrings of torch-uncertainty do not.
# Where the field meets it: a table of criteria for unknown classes or for the alarm of a stream,
# made with small batches.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --target "$folder" torch-uncertainty==0.13.0 \
  torch==2.14.1 torchvision==0.29.1 torchmetrics==1.9.0 lightning==2.6.6 timm==1.0.31 \
  pytorch-ood==0.4.0 "jsonargparse[signatures]==4.53.0" rich==14.3.4 numpy==2.4.6 \
  scipy==1.17.1 scikit-learn==1.9.1
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import logging

import torch
from lightning.pytorch import Trainer
from pytorch_ood.detector import Entropy
from pytorch_ood.metrics import OODMetrics
from sklearn.metrics import average_precision_score, roc_auc_score
from torch.utils.data import DataLoader, TensorDataset
from torch_uncertainty.routines import ClassificationRoutine

CLASSES, IMAGES = 10, 1280
logging.disable(logging.WARNING)
torch.manual_seed(0)
torch.set_num_threads(1)


def draw(margin):
    """Return the logits of images, the largest mostly by the margin, and labels."""
    labels = torch.randint(CLASSES, (IMAGES,))
    logits = torch.randn(IMAGES, CLASSES)
    logits[torch.arange(IMAGES), labels] += margin
    return logits, labels


def report(criterion, batch, known, unknown):
    """Return what torch-uncertainty reports of a network whose input are the logits."""
    routine = ClassificationRoutine(
        torch.nn.Identity(), CLASSES, loss=None, eval_ood=True, ood_criterion=criterion
    )
    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loaders = [DataLoader(TensorDataset(*data), batch_size=batch) for data in (known, unknown)]
    results = trainer.test(routine, loaders, verbose=False)
    values = {name.split("/")[1]: value for part in results for name, value in part.items()}
    return [values[name] for name in ("AUROC", "AUPR", "FPR95")]


def show(name, values):
    print(f"{name:36}", *(f"{value:.3f}" for value in values))


known, unknown = draw(margin=7), draw(margin=5)
logits = torch.cat([known[0], unknown[0]])
is_unknown = torch.arange(2 * IMAGES) >= IMAGES
entropies = torch.special.entr(logits.softmax(1)).sum(1)
true = roc_auc_score(is_unknown, entropies), average_precision_score(is_unknown, entropies)
show("scikit-learn", true)

metrics = OODMetrics()
metrics.update(Entropy(torch.nn.Identity())(logits), torch.where(is_unknown, -1, 0))
other = [metrics.compute()[name] for name in ("AUROC", "AUPR-OUT", "FPR95TPR")]
show("pytorch-ood", other)

seen = {}
for batch in (16, 64, 256, IMAGES):
    seen[batch] = report("entropy", batch, known, unknown)
    show(f"torch-uncertainty, batches of {batch}", seen[batch])
energy = [report("energy", batch, known, unknown) for batch in (64, IMAGES)]
show("torch-uncertainty, energy, 64", energy[0])

assert abs(seen[IMAGES][0] - true[0]) < 1e-4
assert abs(other[0] - true[0]) < 1e-4 and abs(other[1] - true[1]) < 1e-3
assert all(abs(values[2] - other[2]) < 1e-4 for values in seen.values())
assert seen[64][0] > true[0] + 0.05 and seen[16][0] > true[0] + 0.05
assert seen[256][0] > true[0] + 0.03 and seen[64][1] > true[1] + 0.04
assert energy[0] == energy[1] and true[0] < energy[0][0] < seen[64][0]
CODE
