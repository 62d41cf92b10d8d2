"""A study under Slurm: the daemons of Debian's packages on this machine, with their files in a
temporary folder.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import stored_numbers, wait_for
from test_workflow import command_line, write_notebook

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
LACKING = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
pytestmark = pytest.mark.skipif(
    bool(LACKING),
    reason=f"no {', '.join(LACKING)} here; .ci/run installs Debian's slurm-wlm and munge",
)

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=5
MinJobAge=86400
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=64000
PartitionName=main Nodes=ALL Default=YES State=UP
"""
QUICK = (
    "--slurm-status-command squeue --slurm-no-account --slurm-init-seconds-before-status-checks 2"
).split()
SMALL = (
    "image_train_size=200 image_test_size=8 image_training_epochs=1 image_stream=[fog] "
    "image_methods=[tent]"
).split()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Cluster:
    """One node. `variables` are the environment in which its commands reach it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons = dict[str, subprocess.Popen[bytes]]()
        for name in ("state", "spool", "bin"):
            (folder / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        user = subprocess.check_output(["id", "-un"], text=True).strip()
        conf = folder / "slurm.conf"
        conf.write_text(
            CONF.format(host=host, user=user, folder=folder, ports=[free_port(), free_port()])
        )
        self.variables = os.environ | {
            "SLURM_CONF": str(conf),
            "PATH": f"{folder}/bin{os.pathsep}{PATH}",
        }
        # Snakemake starts srun without the variables of Slurm, so it would look for a cluster in
        # /etc.
        srun = folder / "bin" / "srun"
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={conf} exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        folder.chmod(0o755)
        files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self.start("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *files)
        wait_for((folder / "munge.socket").exists, "munged")
        self.start("slurmctld", "-D", "-i")
        self.start("slurmd", "-D")
        wait_for(lambda: self("sinfo", "-h", "-o", "%T") == "idle", "the node")

    def start(self, name: str, *arguments: str) -> None:
        log = (self.folder / f"{name}.out").open("ab")
        self.daemons[name] = subprocess.Popen(
            [shutil.which(name, path=PATH) or name, *arguments],
            env=self.variables,
            stdout=log,
            stderr=log,
        )

    def __call__(self, *command: str) -> str:
        return subprocess.run(
            command, env=self.variables, capture_output=True, text=True
        ).stdout.strip()

    def of_the_node(self) -> list[int]:
        """The processes that a crash of the node would end: slurmd, what it started, and the
        jobs."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                variables = (place / "environ").read_text(errors="replace")
                name = (place / "comm").read_text()
            except OSError:
                continue
            of_slurm = "SLURM_JOB_ID=" in variables or name.startswith(("slurmd", "slurmstepd"))
            if str(self.folder) in variables and of_slurm:
                found.append(int(place.name))
        return found

    def crash(self) -> None:
        for process in self.of_the_node():
            os.kill(process, signal.SIGKILL)
        self.daemons["slurmd"].wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made("scancel", "--user", made("id", "-un"))
    made.crash()
    for name in ("slurmctld", "munged"):
        made.daemons[name].terminate()
        made.daemons[name].wait(30)


CELLS = (
    "profile = 'quick'\nseed = 0\nimage_dataset = None",
    "import os, time\nfrom study.notebook_parameters import settings_from\n"
    "from study.study import Study\n"
    "settings = settings_from(globals())\nstudy = "
    "Study(settings)\nstudy.checkpoint(study.objectives[0])",
    "begun = settings.results_path / f'begun-{seed}'\nif not begun.exists():\n    begun.touch()\n  "
    "  time.sleep(600)",
    "names = ('OMP_NUM_THREADS', 'CUDA_VISIBLE_DEVICES', 'CASCADETTA_GPUS')\n"
    "print('variables', *map(os.environ.get, names))\nstudy.run('tent')",
)


def test_a_cancelled_job_and_a_crashed_node_change_no_number(
    cluster: Cluster, tmp_path: Path
) -> None:
    notebooks = tmp_path / "notebooks"
    here = tmp_path / "here"
    there = tmp_path / "there"
    for folder in (notebooks, here, there):
        folder.mkdir()
    write_notebook(notebooks / "02_adapt_image.ipynb", *CELLS)
    asked = command_line(notebooks, "--seeds", "0,1", "--set", *SMALL, "profile=tiny")
    login = {
        "OMP_NUM_THREADS": "7",
        "CUDA_VISIBLE_DEVICES": "5",
        "CASCADETTA_GPUS": "5",
        "PYTHONPATH": str(ROOT),
    }

    log = (tmp_path / "run.out").open("wb")
    command = [*asked, f"results_folder={there}", "--cluster", "slurm", "--", *QUICK]
    process = subprocess.Popen(command, env=cluster.variables | login, stdout=log, stderr=log)
    try:
        wait_for(lambda: len(list(there.glob("begun-*"))) == 2, "both jobs at work")
        jobs = dict(
            line.split(maxsplit=1)[::-1]
            for line in cluster("squeue", "-h", "-o", "%i %k").splitlines()
        )
        first, second = (
            next(jobs[name] for name in jobs if f"seed{seed}" in name) for seed in (0, 1)
        )
        cluster("scancel", first)
        wait_for(
            lambda: first in cluster("squeue", "-h", "-t", "CANCELLED", "-o", "%i").split(),
            "the job's end",
        )
        cluster.crash()
        wait_for(
            lambda: cluster("squeue", "-h", "-j", second, "-o", "%T") == "PENDING",
            "Slurm to see that the node is down",
        )
        cluster.start("slurmd", "-D")

        def ended() -> bool:
            for line in cluster("squeue", "-h", "-t", "PENDING", "-o", "%i %r").splitlines():
                if line.endswith("BeginTime"):  # it would rest for two minutes
                    cluster("scontrol", "update", f"jobid={line.split()[0]}", "StartTime=now")
            time.sleep(2)
            return process.poll() is not None

        wait_for(ended, "the end")
        assert process.returncode == 0
    finally:
        print(cluster("squeue", "-t", "all"))
        print((tmp_path / "run.out").read_text())  # pytest shows it when something fails
        process.terminate()
        process.wait(30)
    for output in (there / "tiny" / "notebooks").glob("*.ipynb"):
        assert "variables 1 None None" in output.read_text()

    for seed in (0, 1):
        (here / f"begun-{seed}").touch()
    subprocess.run(
        [*asked, f"results_folder={here}"], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True
    )
    assert len(stored_numbers(here)) > 4 and stored_numbers(there) == stored_numbers(here)
