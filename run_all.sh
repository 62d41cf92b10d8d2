#!/usr/bin/env bash
# Makes the environment where it is missing, then:
#   ./run_all.sh [OPTIONS]          runs the study (./run_all.sh --help)
#   ./run_all.sh test [OPTIONS]     runs all tests; options go to pytest
#   ./run_all.sh python FILE …      runs a Python file in the tests' environment
# The environment is the activated one (conda, venv) where that satisfies pyproject.toml, else .venv beside this file.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$root/.venv
export PYTHONPATH=$root PYTHONNOUSERSITE=1 # the repository's own code, and no packages from the home folder
# glibc hands the memory of every large tensor back and asks for it again, page by page: two fifths of the text
# network's meta step. So it may keep 1 GB, and 32 MB is the size from which a tensor has pages of its own.
export MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-1073741824} MALLOC_MMAP_THRESHOLD_=${MALLOC_MMAP_THRESHOLD_:-33554432}

# An installed Python >= 3.11; the versions that the pins were tried with come first.
find_python() {
  for name in python3.12 python3.11 python3.13 python3 python; do
    if "$name" -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1); print(sys.executable)' 2>/dev/null; then return; fi
  done
  return 1
}

# The activated environment's Python, if there is one and it has what is needed ($1: "test" or empty).
activated_python() {
  local prefix=${VIRTUAL_ENV:-${CONDA_PREFIX:-}}
  if [[ -z $prefix || $prefix == "$venv" || ! -x $prefix/bin/python ]]; then return 1; fi
  local lacking
  if lacking=$("$prefix/bin/python" "$root/workflow/environment.py" ${1:+"$1"}); then
    echo "$prefix/bin/python"
  else
    echo "the activated environment $prefix lacks $lacking; using $venv" >&2
    return 1
  fi
}

# What .venv is made from; .venv/made-from holds one such line for each set of requirements that it satisfies.
fingerprint() { echo "$root $(cat "$root/pyproject.toml" "$root/$1" | cksum)"; }

install() {
  if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then
    uv pip install --quiet --compile-bytecode --python "$venv/bin/python" "$@"
  else
    "$venv/bin/python" -m pip install --quiet "$@"
  fi
}

create_venv() {
  if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then
    uv venv --quiet --no-project --python "$(find_python || echo '>=3.11')" "$venv"
  elif python=$(find_python); then
    "$python" -m venv "$venv" || { echo "run_all.sh: install python3-venv or uv, then try again" >&2; return 1; }
  else
    echo "run_all.sh: Python 3.11 or newer is needed, or uv" >&2
    return 1
  fi
}

# Make .venv, or bring it up to date, with requirements.txt or requirements-test.txt ($1).
make_venv() {
  local wanted stamp=$venv/made-from
  wanted=$(fingerprint "$1")
  if grep -qsxF "$wanted" "$stamp" && "$venv/bin/python" -c '' 2>/dev/null; then return; fi
  echo "making the environment in $venv (once; some minutes and some GB, most of it PyTorch)" >&2
  # Without its stamp an environment is half made. The stamp goes first and comes back last.
  if [[ ! -f $stamp ]] || ! "$venv/bin/python" -c '' 2>/dev/null; then
    rm -rf "$venv"
    create_venv
  fi
  rm -f "$stamp"
  install -r "$root/$1"
  install --no-deps -e "$root"
  { fingerprint requirements.txt; fingerprint "$1"; } >"$stamp" # the tests' requirements include the others
}

# Set `python`. CASCADETTA_PYTHON names an environment that is good as it is ($1: "test" or empty).
environment() {
  if [[ -n ${CASCADETTA_PYTHON:-} ]]; then
    python=$CASCADETTA_PYTHON
  elif ! python=$(activated_python "$1"); then
    make_venv "requirements${1:+-$1}.txt"
    python=$venv/bin/python
  fi
}

case ${1:-} in
  test)
    environment test
    cd "$root"
    exec "$python" -m pytest "${@:2}"
    ;;
  python)
    environment test
    exec "$python" "${@:2}"
    ;;
  -h | --help) # needs no environment
    if ! python=$(find_python); then environment ""; fi
    ;;
  *)
    environment ""
    ;;
esac
exec "$python" "$root/workflow/run.py" "$@"
