# Read by the scripts of this folder (bash 3.2 and up): finds a Python, makes a virtual environment, installs jaxlm.
# A mistake of the user's ends with one line and code 2, as in the commands.

# The folder for results is meant as seen from where the user stands; everything else happens in the checkout.
case "${JAXLM_RUNS:-}" in
  '') unset JAXLM_RUNS ;;
  /*) ;;
  *) export JAXLM_RUNS="$PWD/$JAXLM_RUNS" ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$@"; }

stop() {
  printf 'jaxlm: %s\n' "$*" >&2
  exit 2
}

# A command as one could type it.
typed() {
  local word line='$'
  for word in "$@"; do
    case "$word" in
      *[!A-Za-z0-9_./=:,@+-]* | '') line="$line '$(printf '%s' "$word" | sed "s/'/'\\\\''/g")'" ;;
      *) line="$line $word" ;;
    esac
  done
  say "$line"
}

run() {
  typed "$@"
  "$@"
}

# Sets PYTHON to an interpreter of at least 3.11; the caller's own PYTHON is the only candidate if set.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      PYTHON=$candidate
      return 0
    fi
  done
  stop "${PYTHON:-python3} is $({ "${PYTHON:-python3}" --version 2>/dev/null || echo no Python; } | head -n 1)," \
    "allowed: Python 3.11 or newer on the PATH, or as PYTHON=/path/to/python3"
}

# make_environment DIR: a virtual environment with pip, also where the system's Python comes without ensurepip (Debian).
make_environment() {
  "$1/bin/python" -m pip --version >/dev/null 2>&1 && return 0
  find_python
  if "$PYTHON" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    run "$PYTHON" -m venv --clear "$1"
  elif "$PYTHON" -c 'import venv, pip' >/dev/null 2>&1; then
    run "$PYTHON" -m venv --clear --without-pip "$1"
    run "$PYTHON" -m pip --python "$1/bin/python" install -qq pip
  else
    stop "$PYTHON has no pip, allowed: a Python with pip (on Debian and Ubuntu: the packages python3-pip and python3-venv)"
  fi
}

# ensure DIR NAME CONSTRAINTS REQUIREMENT...: nothing if that was done and neither the constraints nor pyproject.toml
# have changed since (no Python is started then). NAME tells installations in one environment apart.
ensure() {
  local environment=$1 stamp=$1/installed-$2 constraints=$3 content
  shift 3
  content=$(printf '%s\n' "$PWD" "$@" | cat - pyproject.toml "$constraints" | cksum)
  [ -x "$environment/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$content" ] && return 0
  make_environment "$environment"
  run "$environment/bin/python" -m pip install -qq -c "$constraints" "$@"
  printf '%s\n' "$content" >"$stamp"
}

# install_jaxlm EXTRAS: jaxlm in .venv with these extras, at the versions of constraints.txt.
install_jaxlm() {
  case ",$1," in
    # First and alone: named by its version it is the build that the machine's pip is set up for, and it stays.
    *,hf,*) ensure .venv torch constraints.txt "$(grep '^torch==' constraints.txt)" ;;
  esac
  ensure .venv "jaxlm-$1" constraints.txt -e ".[$1]"
}

# find_device: sets DEVICE to cuda, tpu or cpu (what is set before is kept) and says which.
find_device() {
  local name
  if [ -z "${DEVICE:-}" ]; then
    if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1; then
      DEVICE=cuda
    elif has_tpu; then
      DEVICE=tpu
    else
      DEVICE=cpu
    fi
  fi
  case "$DEVICE" in
    cuda) name=$(nvidia-smi -L | head -n 1 | sed 's/ (UUID.*//') ;;
    tpu) name=TPU ;;
    *) name="CPU, $(getconf _NPROCESSORS_ONLN) cores" ;;
  esac
  say "device: $name"
  # A GPU or TPU that is there but not asked for stays untouched.
  if [ "$DEVICE" = cpu ]; then export JAX_PLATFORMS=cpu; fi
}

# A TPU is a PCI device of Google's (vendor 1ae0) with one of these numbers (v3 to v7; 0042, the network card, is none).
has_tpu() {
  local folder
  for folder in /sys/bus/pci/devices/*; do
    if [ "$(cat "$folder/vendor" 2>/dev/null)" = 0x1ae0 ]; then
      case "$(cat "$folder/device" 2>/dev/null)" in
        0x0027 | 0x0056 | 0x005e | 0x0062 | 0x0063 | 0x006f | 0x0076) return 0 ;;
      esac
    fi
  done
  return 1
}

# need_disk GB: stops where less is free.
need_disk() {
  local free
  free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
  [ "$free" -ge "$1" ] || stop "$free GB are free in $PWD, allowed: at least $1 GB, for packages and results"
}

# tune_malloc: large pages for glibc's allocator, before Python starts; a training step on a CPU is about 20% faster.
tune_malloc() {
  if getconf GNU_LIBC_VERSION >/dev/null 2>&1; then
    export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}"
  fi
}

# pending TITLE RESULT: whether a step is still to be done, which it says; sets RAN then.
RAN=no
pending() {
  if [ -e "$2" ]; then
    say "$1: done before ($2)"
    return 1
  fi
  say "" "$1"
  RAN=yes
}

# step TITLE RESULT COMMAND...: runs the command unless RESULT exists, which the command writes last.
step() {
  pending "$1" "$2" || return 0
  shift 2
  run "$@"
}

# step_into TITLE RESULT COMMAND...: the same for a command that prints its result; RESULT is whole or not there.
step_into() {
  pending "$1" "$2" || return 0
  local result=$2
  shift 2
  say "$(typed "$@") > $result"
  "$@" >"$result.part"
  mv "$result.part" "$result"
}
