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
# What sanitizers run: small cases of every operator.
lists='Backends/RowLists.*cuda:Cases/BuildRaggedTable.*cuda_?x*:Cases/BuildRaggedTable.*cuda_*_?:Cases/TranslateTopkTable.*cuda*:Cases/WindowRowsTable.*cuda*:Cases/CompressedRowsTable.*cuda*:Cases/CombineTable.*cuda*:Cases/CopyToGraphBuffersTable.*cuda*:KvCacheRead.*cuda:KvCacheWrite.*cuda'
large='*large_*:*gigabyte*:*far_*:*8320*:*5000*:*70000*:*262144*:*300000*:*PoolBeyond*:*GoldenFiles*:*ManyRows*'

# run NAME LIMIT COMMAND...: output to OUT/NAME.txt, its last lines here.
run() {
  local name=$1 limit=$2
  shift 2
  local start=$SECONDS
  timeout "$limit" "$@" > "$out/$name.txt" 2>&1
  echo "==== $name: status $?, $((SECONDS - start)) s"
  tail -n "${lines:-4}" "$out/$name.txt"
}

# sanitize NAME TOOL FILTER: the tests of FILTER under a tool of compute-sanitizer, in shards side by side.
sanitize() {
  local name=$1 tool=$2 filter=$3 shard start=$SECONDS
  for shard in 0 1 2 3 4 5 6 7; do
    GTEST_TOTAL_SHARDS=8 GTEST_SHARD_INDEX=$shard OMP_NUM_THREADS=2 timeout 70 \
      compute-sanitizer --tool "$tool" --print-limit 3 "$tests" --gtest_brief=1 --gtest_filter="$filter" > "$out/$name.$shard" 2>&1 &
  done
  wait
  cat "$out/$name".[0-7] > "$out/$name.txt" && rm "$out/$name".[0-7]
  echo "==== $name: $((SECONDS - start)) s, $(grep -c 'PASSED' "$out/$name.txt") of 8 shards came to their end"
  grep -h -e SUMMARY -e 'FAILED  ]' "$out/$name.txt" | sort | uniq -c
}

nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$out/card.txt"
run tests 180 "$tests" --gtest_brief=1
[ -d "$golden" ] && run verify-golden 30 "$cli" verify "$golden" --device cuda
[ -d "$layers" ] && run verify-layers 30 "$cli" verify "$layers" --device cuda
run bench 200 "$cli" bench --device cuda --json
cp "$out/bench.txt" "$out/bench.json"
attention() { echo "Cases/AttentionTable.*$1*fp8*:Cases/AttentionTable.*$1*ranges:Cases/AttentionTable.*$1*nan_*:Cases/AttentionTable.*$1*splits_3"; }
sanitize memcheck memcheck "$lists:$(attention gpu_)-$large"
sanitize synccheck synccheck "$lists:$(attention gpu_)-$large"
sanitize racecheck racecheck "$lists:$(attention gpu_portable)-$large"
# Not a verdict: racecheck does not know that transaction barriers order the stores of these kernels.
sanitize racecheck-sm90 racecheck "$(attention gpu_sm90)-$large"
if python3 -c 'import torch, triton' 2> /dev/null; then
  lines=40 run triton-peers 90 python3 "$root/bench/peers/triton_ragged.py" --json "$out/triton-peers.json"
  if python3 -c 'import raggedmla' 2> /dev/null; then
    lines=12 run host-cost 30 python3 "$root/bench/python_host_cost.py" --json "$out/python-host-cost.json"
    lines=12 run decode-step 60 python3 "$root/bench/decode_step.py" --json "$out/decode-step.json" \
      --timeline "$out/decode-step-timeline.json"
    run python-tests 150 python3 -m pytest -q "$root/python/tests" --durations=15
  fi
fi
