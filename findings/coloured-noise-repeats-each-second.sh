#!/usr/bin/env bash
# torch-audiomentations 0.12.0 with torch 2.14.1 and torchaudio 2.11.0: the noise of AddColoredNoise is one
# second that repeats, and of another colour than its name. Expected, as its docstring says: power falls
# as 1/f**f_decay, so by 3.0 dB an octave for pink noise (f_decay 1) and 6.0 for brown (2), and the noise
# of a recording of three seconds has no period. Seen: above 500 Hz it falls by 5.8 dB for "pink" and 11.6
# for "brown", nearly twice that, since f_decay is applied to the amplitude; below 100 Hz it is flatter
# than its name. The second and the third second add the samples of the first again, to rounding.
# Limits: tried at 16 kHz and on a CPU. Where the field meets it: a severity in colours of noise, and
# streams of long recordings, where a network can learn a noise that it has just heard.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python3 -m pip install --quiet --no-compile --target "$folder" torch-audiomentations==0.12.0 \
  torch==2.14.1 torchaudio==2.11.0 numpy==2.4.6
PYTHONPATH=$folder python3 -W ignore - <<'CODE'
import numpy as np
import torch
from torch_audiomentations import AddColoredNoise

RATE = 16_000
torch.manual_seed(0)
sound = torch.sin(2 * torch.pi * 440 * torch.arange(3 * RATE) / RATE).expand(64, 1, -1)


def slope(spectrum, low, high):
    """Mean change of power per octave, in decibels, between two frequencies."""
    frequencies = np.arange(low, high)
    return np.polyfit(np.log2(frequencies), 10 * np.log10(spectrum[low:high]), 1)[0]


slopes = {}
for decay in (0.0, 1.0, 2.0):
    add = AddColoredNoise(
        min_snr_in_db=0, max_snr_in_db=0, min_f_decay=decay, max_f_decay=decay, p=1,
        sample_rate=RATE, output_type="tensor",
    )
    noise = (add(sound) - sound)[:, 0]
    first, second, third = noise.split(RATE, dim=1)
    repeats = max(float((part - first).abs().max()) for part in (second, third))
    spectrum = torch.fft.rfft(first).abs().square().mean(0).numpy()  # one value per hertz
    slopes[decay] = slope(spectrum, 500, 8000), slope(spectrum, 20, 100)
    print(f"f_decay {decay:.0f}: {slopes[decay][0]:+.1f} dB an octave above 500 Hz, "
          f"{slopes[decay][1]:+.1f} below 100 Hz, by its docstring {-3.01 * decay:+.1f}; "
          f"deviation {float(noise.std()):.2f}, from second to second it differs by {repeats:.0e}")
    assert noise.std() > 0.5 and repeats < 1e-5
assert abs(slopes[0.0][0]) < 0.3
assert -6.1 < slopes[1.0][0] < -5.2 and -12.1 < slopes[2.0][0] < -10.7
CODE
