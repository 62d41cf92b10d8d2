#!/usr/bin/env bash
# Makes the environment where it is missing, then:
#   ./run_all.sh [OPTIONS]          runs the study (./run_all.sh --help)
#   ./run_all.sh test [OPTIONS]     runs all tests; options go to pytest
#   ./run_all.sh python FILE …      runs a Python file in the tests' environment
#   ./run_all.sh site [OPTIONS]     makes the site (study/tools/site.py)
# The environment is the activated one (conda, venv) where that satisfies pyproject.toml, else .venv beside this file.
set -euo pipefail

here=$(readlink -f "${BASH_SOURCE[0]}" 2>/dev/null || echo "${BASH_SOURCE[0]}") # an old macOS has no readlink -f
root=$(cd "$(dirname "$here")" && pwd)
venv=$root/.venv
export PYTHONPATH=$root PYTHONNOUSERSITE=1 # the repository's own code, and no packages from the home folder
# glibc hands the memory of every large tensor back and asks for it again, page by page: three fifths of the text
# network's meta step (benchmarks/speed.py). So no tensor has pages of its own, and what is free stays with the program:
# all of it below the last tensor in use, and up to 1 GB above.
export MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-1073741824} MALLOC_MMAP_MAX_=${MALLOC_MMAP_MAX_:-0}

works() { "$@" >/dev/null 2>&1; }

# An installed Python >= 3.11.4; the versions that the pins were tried with come first.
find_python() {
  for name in python3.12 python3.11 python3.13 python3 python; do
    "$name" -c 'import sys; sys.version_info >= (3, 11, 4) or sys.exit(1); print(sys.executable)' 2>/dev/null && return
  done
  echo "run_all.sh: Python 3.11.4 or newer is needed, or uv" >&2
  return 1
}

# Stop at what is wrong with the arguments at first sight, before an environment is made for them.
check_arguments() {
  local any
  if any=$(find_python 2>/dev/null); then "$any" -P -m study.workflow.arguments "$@"; fi
}

# What .venv is made from; .venv/made-from holds one such line for each set of requirements that it satisfies, and is
# empty while the environment is being made.
fingerprint() { echo "$root $(cat "$root/pyproject.toml" "$root/$1" | cksum)"; }

# The clone whose run_all.sh made .venv: what stands in the stamp before the two numbers of cksum. Empty while it is made.
maker() {
  local line=
  read -r line <"$venv/made-from" || true
  echo "${line% * *}"
}

# Make .venv, or bring it up to date, with requirements.txt, requirements-test.txt or requirements-docs.txt ($1).
make_venv() {
  local base before owner stamp=$venv/made-from install=("$venv/bin/python" -m pip install --quiet)
  made() { grep -qsxF "$(fingerprint "$1")" "$stamp" && works "$venv/bin/python" -c ''; }
  if made "$1"; then return; fi
  owner=$([[ ! -e $stamp ]] || maker)
  # Another clone's environment, reached by a link or copied here. Of a clone that has been moved, it is made again.
  if [[ -e $stamp && $owner != "$root" ]] && [[ -L $venv || -d $owner ]]; then
    echo "$venv belongs to ${owner:-another folder}, and run_all.sh changes no environment of another clone: remove it," \
      "or say CASCADETTA_PYTHON=$venv/bin/python to use it as it is" >&2
    return 1
  fi
  echo "making the environment in $venv (once; some minutes and some GB, most of it PyTorch)" >&2
  exec 9>"$root/.venv.lock"
  works flock 9 || echo "nothing can be locked here: start one run_all.sh at a time until that is done" >&2
  if made "$1"; then return; fi # by another run_all.sh, meanwhile
  if [[ -e $venv && ! -e $stamp ]]; then
    echo "run_all.sh did not make $venv: remove it, or say CASCADETTA_PYTHON=$venv/bin/python to use it as it is" >&2
    return 1
  fi
  if works uv --version; then install=(uv pip install --quiet --compile-bytecode --python "$venv/bin/python"); fi
  if [[ -e $stamp && $(maker) != "$root" ]]; then : >"$stamp"; fi # of this clone before it was moved
  # With an empty stamp an environment is half made. So the stamp is emptied first and filled last; it is filled as it
  # was where the installer gives up on an addition, as without a network, which leaves what is there as it is.
  if [[ ! -s $stamp ]] || ! works "$venv/bin/python" -c ''; then
    mkdir -p "$venv"
    : >"$stamp"
    find "$venv/" -mindepth 1 -maxdepth 1 ! -name made-from -exec rm -rf {} +
    if works uv --version; then
      uv venv --quiet --allow-existing --no-project --python "$(find_python 2>/dev/null || echo '>=3.11.4')" "$venv"
    else
      base=$(find_python)
      "$base" -m venv "$venv" || { echo "run_all.sh: install python3-venv or uv, then try again" >&2; return 1; }
    fi
  fi
  before=$(cat "$stamp")
  : >"$stamp"
  # Every file is checked by its hash; what builds the package itself is among them, so nothing else is fetched.
  if ! { "${install[@]}" --require-hashes -r "$root/$1" && "${install[@]}" --no-deps --no-build-isolation -e "$root"; }; then
    printf '%s' "${before:+$before$'\n'}" >"$stamp"
    return 1
  fi
  { fingerprint requirements.txt; fingerprint "$1"; } >"$stamp" # the larger files include requirements.txt
}

# Add the kernel that the notebooks name; Jupyter reads "python" in it as the Python that Jupyter itself runs in.
add_kernel() {
  local from=$root/study/workflow/kernels/cascadetta to=${python%/bin/python}/share/jupyter/kernels
  if [[ -n ${CASCADETTA_PYTHON:-} ]] || works cmp "$from/kernel.json" "$to/cascadetta/kernel.json"; then return; fi
  works mkdir -p "$to" && works cp -R "$from" "$to" || echo "$to is not writable: JupyterLab lacks its kernel" >&2
}

# Set `python` ($1: "test", "docs" or empty). CASCADETTA_PYTHON names an environment that is good as it is.
environment() {
  local prefix=${VIRTUAL_ENV:-${CONDA_PREFIX:-$venv}} lacking=
  python=${CASCADETTA_PYTHON:-$prefix/bin/python}
  if [[ -n ${CASCADETTA_PYTHON:-} ]]; then return; fi
  if [[ $prefix != "$venv" || -x $python && ! -e $venv/made-from ]] && lacking=$("$python" "$root/study/workflow/missing_packages.py" ${1:+"$1"}); then return; fi
  if [[ -n $lacking ]]; then echo "the activated environment $prefix lacks $lacking; using $venv" >&2; fi
  make_venv "requirements${1:+-$1}.txt"
  exec 9>&- # the next run_all.sh may see to the environment
  python=$venv/bin/python
}

case ${1:-} in
  test | python) environment test; add_kernel ;;
  site) environment docs; add_kernel ;;
  -h | --help) python=$(find_python 2>/dev/null) || environment "" ;; # it needs no environment
  *) check_arguments "$@"; environment ""; add_kernel ;;
esac
case ${1:-} in
  test)
    shift
    # All tests: two files at a time, in their order, because the longest have few tests and would otherwise come last.
    (($#)) || set -- --numprocesses 2 --dist loadfile --no-loadscope-reorder
    cd "$root" && exec "$python" -m pytest "$@"
    ;;
  python) exec "$python" "${@:2}" ;;
  site) cd "$root" && exec "$python" study/tools/site.py "${@:2}" ;;
  *) exec "$python" -P -m study.workflow "$@" ;;
esac
