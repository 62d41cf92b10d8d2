"""What made a result: the revision of the code, the device, the versions, the data, the network."""

import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError

from study import ROOT

CODE = ("cascadetta_lib", "profiles", "study")
"""What makes the numbers. The notebooks only ask for them, and an editor that saves their outputs
changes nothing.
"""
PACKAGES = ("torch", "torchvision", "numpy", "pandas")


@dataclass(frozen=True)
class NetworkOrigin:
    """Where the network of a run comes from.

    origin: `trained here`, or the kind of place and the beginning of a hash.
    sha256: of its weights; None where it was trained here.
    card: what is known of it; None where it was trained here.
    code_revision: the commit that trained it here; None where it was brought.
    code: the hash of the code that trained it here, part of its key in the store.
    """

    origin: str
    sha256: str | None = None
    card: Mapping[str, Any] | None = None
    code_revision: str | None = None
    code: str = ""


UNPACKED = "unpacked"
DISTANCES_BY_BATCH = "distances are by batch"
"""Words of `Provenance.filed`, for runs that study/tools/pack_runs.py has filed."""


@dataclass(frozen=True)
class Provenance:
    """What made a checkpoint or a run, beside its request.

    fingerprint, domain_source, origin: of the data, see `Dataset`. code: a hash of the source.
    fingerprint, domain_source and code are in the key. seconds: what it took. cost: see
    `evaluation.cost`. filed: where it was made, if not in this store.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    profile: str
    data_source: str
    official_data: bool
    class_names: tuple[str, ...]
    fingerprint: str
    domain_source: str
    compare_with: str | None
    unit: str
    origin: str
    code_revision: str
    device: str
    threads: int
    python: str
    packages: Mapping[str, str]
    seconds: float
    finished: str
    code: str = ""
    network: NetworkOrigin | None = None
    cost: Mapping[str, float] = field(default_factory=dict)
    filed: str | None = None

    @property
    def distances_by_batch(self) -> bool:
        """Whether the distances moved are those after each batch. Of most unpacked runs they are
        those at the end of each domain.
        """
        filed = self.filed or ""
        return not filed.startswith(UNPACKED) or DISTANCES_BY_BATCH in filed

    @property
    def card(self) -> Mapping[str, Any]:
        """The card of the network; empty where it was trained here."""
        return (self.network and self.network.card) or {}

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: object) -> "Provenance":
        """Make one of what `to_json` gave. Raises ValueError, which names the first wrong field."""
        try:
            return _adapter().validate_python(values)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"])) or "the whole"
            raise ValueError(f"its provenance is not valid: {place}: {fault['msg']}") from None


@cache
def _adapter() -> TypeAdapter[Provenance]:
    """Return what checks a provenance. It is made once, because that takes as long as reading a
    run.
    """
    return TypeAdapter(Provenance)


@lru_cache(maxsize=1)
def code_revision() -> str:
    """Return the commit of the code at the first call: with `-dirty` if code differs or is new,
    `unknown` outside a checkout.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("rev-parse", "--show-prefix"):  # it lies in the checkout of another project
            return "unknown"
        changed = git("status", "--porcelain", "--", *CODE)
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


code_revision()  # is asked at once, since the files may be others by the time of the first result


def choose_device(name: str) -> str:
    """Return the device of a name; `auto` is CUDA if there is one.

    Raises ValueError for a device that is not there.
    """
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise ValueError(
            "device = 'cuda': this machine has no such device; allowed are auto and cpu"
        )
    if name == "auto":
        return "cuda" if available else "cpu"
    return name


def cpu_name() -> str:
    """Return the name of the CPU, such as `AMD EPYC 7763`; empty if the system tells none."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(\S.*)$", told, flags=re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def provenance(device: str, seconds: float) -> dict[str, Any]:
    """Describe the machine, the versions and the time, by the names of the fields of Provenance.

    With other instructions than, say, AVX2 a CPU rounds otherwise, and so may one of another maker
    with the same instructions.
    """
    threads = torch.get_num_threads()
    instructions = torch.backends.cpu.get_cpu_capability()
    cpu = f"{platform.machine()} CPU"
    if cpu_name():
        cpu += f" ({cpu_name()})"
    cpu += f", {instructions}, {threads} thread{'s' if threads > 1 else ''}"
    return {
        "code_revision": code_revision(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu,
        "threads": threads,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "seconds": round(seconds, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
