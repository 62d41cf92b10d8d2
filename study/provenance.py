"""What made a result: the revision of the code, the device, the versions."""

import platform
import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import torch

from study.settings import ROOT

CODE = ("cascadetta_lib", "profiles", "study")
"""What makes the numbers. The notebooks only ask for them, and an editor that saves their outputs
changes nothing.
"""
PACKAGES = ("torch", "torchvision", "numpy", "pandas")


@lru_cache(maxsize=1)
def code_revision() -> str:
    """The commit of the code when first asked, `-dirty` where code differs or is new, `unknown`
    outside a checkout.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("rev-parse", "--show-prefix"):  # it lies in the checkout of another project
            return "unknown"
        return git("rev-parse", "--short=12", "HEAD") + (
            "-dirty" if git("status", "--porcelain", "--", *CODE) else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


code_revision()  # is asked at once, since the files may be others by the time of the first result


def choose_device(name: str) -> str:
    """`auto` is CUDA where there is one. Raises ValueError for a device that is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "device = 'cuda': this machine has no such device; allowed are auto and cpu"
        )
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def provenance(device: str, seconds: float) -> dict[str, Any]:
    """What describes a result beside its data. With other instructions than, say, AVX2 a CPU rounds
    otherwise.
    """
    threads, instructions = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    cpu = f"{platform.machine()} CPU, {instructions}, {threads} thread{'s' if threads > 1 else ''}"
    return {
        "code_revision": code_revision(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu,
        "threads": threads,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "seconds": round(seconds, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
