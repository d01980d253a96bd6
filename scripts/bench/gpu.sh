#!/bin/sh
# gpu.sh OUT -- the benchmarks on the GPU beside PyTorch on the same card, in a few minutes. What they print is appended to
# results/GPUMODEL-DATE.txt, with the model, the driver and the date.
#
#     sh scripts/bench/gpu.sh build                           everything
#     GROUPS_OF_GPU=gpu_permute sh scripts/bench/gpu.sh build     some groups (figures.lua lists them)
#     ROUNDS=5 SECONDS_EACH=0.3 sh scripts/bench/gpu.sh build     more exact, and slower
set -eu
out=${1:-build}
here=$(dirname "$0")
unset FLOW_CUDA_EMULATED FLOW_TEST_DEVICE
why=$("$out/flowlua" -e 'local ok, m = pcall(function() flow.tensor({0}):to("cuda"):item() end)
    if not ok then print((tostring(m):gsub("^.-:%d+: ", ""))) end' 2>&1)
if [ -n "$why" ]; then
    echo "bench-gpu: skipped: $why"
    exit 0
fi
card=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1)
model=$(echo "$card" | cut -d, -f1 | tr -cs 'A-Za-z0-9\n' '-' | sed 's/^-//; s/-$//')
file="$here/results/$model-$(date -u +%Y-%m-%d).txt"
mkdir -p "$here/results"
groups=${GROUPS_OF_GPU:-gpu_limits gpu_permute gpu_elementwise gpu_softmax gpu_reduce gpu_launch gpu_train gpu_matmul}
{
    echo "GPU: $card MiB; $(date -u +%Y-%m-%dT%H:%M:%SZ); commit $(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo unknown)"
    # shellcheck disable=SC2086
    ROUNDS=${ROUNDS:-3} SECONDS_EACH=${SECONDS_EACH:-0.12} sh "$here/run.sh" "$out" $groups 2>&1
    echo
} | tee -a "$file"
echo "appended to $file"
