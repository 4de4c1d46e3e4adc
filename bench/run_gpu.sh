#!/usr/bin/env bash
# Everything that a GPU must show, in one go: tests, sanitizers, golden files, the bench suites, the peers.
#   bench/run_gpu.sh BUILD OUT
# BUILD is a CUDA build tree (cmake --preset cuda); logs and JSON files go to OUT. About four minutes on an H200.
# Python parts run if `python3` can import torch and triton; PYTHONPATH must name the installed package for ratios.
set -uo pipefail
build=$1 out=$2 root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
cli=$build/tools/raggedmla/raggedmla tests=$build/tests/raggedmla_tests
golden=${RAGGEDMLA_GOLDEN:-$root/../shared/golden} layers=${RAGGEDMLA_GOLDEN_LAYER:-$root/../shared/golden-layer}
small='Cases/AttentionTable.*gpu*fp8*:Cases/AttentionTable.*gpu*ranges:Cases/AttentionTable.*gpu*splits_3:*RowList*cuda*small*'

# run NAME LIMIT COMMAND...: output to OUT/NAME.txt, its last lines here.
run() {
  local name=$1 limit=$2
  shift 2
  local start=$SECONDS
  timeout "$limit" "$@" > "$out/$name.txt" 2>&1
  echo "==== $name: status $?, $((SECONDS - start)) s"
  tail -n "${lines:-4}" "$out/$name.txt"
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$out/card.txt"
run tests 120 "$tests" --gtest_brief=1
[ -d "$golden" ] && run verify-golden 30 "$cli" verify "$golden" --device cuda
[ -d "$layers" ] && run verify-layers 30 "$cli" verify "$layers" --device cuda
run bench 200 "$cli" bench --device cuda --json
cp "$out/bench.txt" "$out/bench.json"
for tool in memcheck racecheck synccheck; do
  run "$tool" 60 compute-sanitizer --tool "$tool" "$tests" --gtest_brief=1 --gtest_filter="$small"
done
if python3 -c 'import torch, triton' 2> /dev/null; then
  lines=40 run triton-peers 90 python3 "$root/bench/peers/triton_ragged.py" --json "$out/triton-peers.json"
  if python3 -c 'import raggedmla' 2> /dev/null; then
    lines=12 run host-cost 30 python3 "$root/bench/python_host_cost.py" --json "$out/python-host-cost.json"
    lines=12 run decode-step 60 python3 "$root/bench/decode_step.py" --json "$out/decode-step.json" \
      --timeline "$out/decode-step-timeline.json"
    run python-tests 150 python3 -m pytest -q "$root/python/tests" --durations=15
  fi
fi
