#!/usr/bin/env bash
# audiomentations 0.43.1 with python-stretch 0.3.1: PitchShift by 0 semitones and TimeStretch by 1,
# with the default method, fade out the end of a recording. Expected: the input, to rounding. Seen:
# a second of noise at 16 kHz comes out as it was, to 1e-4 of its deviation, except for its ends:
# the last 10 ms keep half of their energy. Other shifts go through the same window.
# Limits: tried for one second at 16 kHz in mono. Where the field meets it: a word that is cut close
# to its end, as in Speech Commands, loses some of its last sound however small the shift.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --target "$folder" audiomentations==0.43.1 python-stretch==0.3.1 \
  numpy==2.4.6
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import audiomentations
import numpy as np

noise = np.random.default_rng(0).standard_normal(16_000).astype(np.float32) / 10
changes = {
    "shift by 0": audiomentations.PitchShift(0, 0, p=1),
    "stretch by 1": audiomentations.TimeStretch(1.0, 1.0, p=1),
}
for name, change in changes.items():
    changed = change(noise, sample_rate=16_000)
    assert changed.shape == noise.shape
    error = np.abs(changed - noise) / noise.std()
    last = slice(-160, None)  # 10 ms
    kept = np.square(changed[last]).sum() / np.square(noise[last]).sum()
    print(f"{name}: {error[800:-800].max():.1e} within, of the last 10 ms {kept:.0%} are left")
    assert error[800:-800].max() < 1e-4 and 0.5 < kept < 0.6
CODE
