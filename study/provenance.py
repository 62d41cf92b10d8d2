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
"""The folders whose code makes the numbers. Notebooks only ask for numbers, so an editor that saves
their outputs does not change the code.
"""
PACKAGES = ("torch", "torchvision", "numpy", "pandas")


@dataclass(frozen=True)
class NetworkOrigin:
    """Where the network of a run comes from.

    A network that was not trained here is shipped, published, from a folder, or brought by the user
    (Study.bring).

    origin: `trained here`; else the kind of the network, and the beginning of a hash.
    sha256: the hash of the network's weights; None if it was trained here.
    card: what is known of the network; None if it was trained here.
    code_revision: the commit that trained the network here; None if it was not trained here.
    code: the hash of the code that trained the network here, part of its key in the store; empty if
        it was not trained here.
    """

    origin: str
    sha256: str | None = None
    card: Mapping[str, Any] | None = None
    code_revision: str | None = None
    code: str = ""


UNPACKED = "unpacked"
"""`Provenance.filed` begins with this word if `pack_runs.py unpack` has put the run from the
committed files back into a store.
"""
DISTANCES_BY_BATCH = "distances are by batch"
"""After UNPACKED, `Provenance.filed` has these words if the committed files keep how far the
weights were from the source after each batch, not only at the end of each domain.
"""


@dataclass(frozen=True)
class Provenance:
    """What made a checkpoint or a run, besides its request.

    fingerprint, domain_source, origin: facts of the data, as in `Dataset`. The first two are in the
        key of a run, and the fingerprint is in the key of a network that is trained here.
    code: the hash of the code, which is in the key.
    seconds: how long the making took.
    network: where the network of a run comes from.
    cost: see `evaluation.cost`.
    filed: None if the run was made here. If `pack_runs.py unpack` put it into this store from the
        committed files: the word UNPACKED, then which of the run's columns are by batch or by
        domain.
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
        """Whether the recorded distances of the weights from the source are those after each batch.
        For most runs that `pack_runs.py unpack` has put back into a store, only the distances at
        the end of each domain are known.
        """
        filed = self.filed or ""
        return not filed.startswith(UNPACKED) or DISTANCES_BY_BATCH in filed

    @property
    def card(self) -> Mapping[str, Any]:
        """The card of the network; empty if the network was trained here."""
        return (self.network and self.network.card) or {}

    def to_json(self) -> dict[str, Any]:
        """Return all fields as values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: object) -> "Provenance":
        """Make a provenance from what `to_json` returned. Raises ValueError, which names the first
        wrong field.
        """
        try:
            return _adapter().validate_python(values)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"])) or "the whole"
            raise ValueError(f"its provenance is not valid: {place}: {fault['msg']}") from None


@cache
def _adapter() -> TypeAdapter[Provenance]:
    """Return the validator of a provenance. It is made once, because making it takes as long as
    reading a run.
    """
    return TypeAdapter(Provenance)


@lru_cache(maxsize=1)
def code_revision() -> str:
    """Return the commit of the code as it was at the first call. It ends with `-dirty` if code was
    changed or added since the commit. Outside a checkout return `unknown`.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if git("rev-parse", "--show-prefix"):  # the code lies in the checkout of another project
            return "unknown"
        changed = git("status", "--porcelain", "--", *CODE)
        return git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


code_revision()  # called at import, since the files may change before the first result


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
    """Return the name of the CPU, such as `AMD EPYC 7763`; empty if the system does not tell it."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(\S.*)$", told, flags=re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def provenance(device: str, seconds: float) -> dict[str, Any]:
    """Return the fields of Provenance that describe the machine, the versions and the time.

    seconds: how long the making took.

    The device is a GPU's name, or a CPU's name and instructions, because CPUs with different
    instructions, such as AVX2, round numbers differently. So may CPUs of different makers with the
    same instructions.
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
