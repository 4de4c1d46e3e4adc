# Shared by the scripts of this folder. Sourced, not run.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cores=$(nproc)
venv=.venv

step() { printf '\n==== %s  (%dm%02ds)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
note() { printf -- '---- %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# A CUDA compiler: on PATH, in the usual folder, or the one that script/bootstrap put into the virtual environment.
find_nvcc() {
  local candidate
  for candidate in "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
    "$PWD/$venv"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    if [ -x "$candidate" ]; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

have_nvidia_gpu() { command -v nvidia-smi > /dev/null && nvidia-smi -L 2> /dev/null | grep -q GPU; }

# ninja's line of progress is for terminals; logs get failures only.
quiet=()
[ -t 1 ] || quiet=(-- --quiet)

# configure PRESET [cmake options]: with ccache where there is one.
configure() {
  local preset=$1
  shift
  local launcher=()
  if command -v ccache > /dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  fi
  cmake --preset "$preset" "${launcher[@]}" --log-level=WARNING "$@" > /dev/null
}
