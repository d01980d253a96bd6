#!/bin/sh
# gpu.sh OUT -- the benchmarks on the GPU beside PyTorch on the same card, in a few minutes. Their output is appended to
# results/GPUMODEL-DATE.txt, with all that a reader of the figures has to know. A case that fails or hangs costs its own
# row.
#
#     sh scripts/bench/gpu.sh build                           everything
#     GROUPS_OF_GPU=gpu_permute sh scripts/bench/gpu.sh build     some groups (figures_gpu.lua lists them)
#     ROUNDS=5 SECONDS_EACH=0.3 sh scripts/bench/gpu.sh build     more exact, and slower
#     GPU_DRY=1 sh scripts/bench/gpu.sh build                 no GPU: every case at a tiny size, flowlua's on the emulation (make
#                                                             emulated), PyTorch's on the CPU; the records are build/bench-gpu-dry.*
#
# BENCH_LIMIT: seconds after which no further case is begun (270); CASE_LIMIT: seconds for one answer (30). OUT_LOGS: a folder
# that gets a copy of the record.
set -eu
out=${1:-build}
here=$(dirname "$0")
unset FLOW_CUDA_EMULATED FLOW_TEST_DEVICE
if [ "${GPU_DRY:-}" = 1 ]; then
    export GPU_DRY FLOW_CUDA_EMULATED=1 FLOW_CUSOLVER="$out/emulated/fake_cusolver.so"
    export ROUNDS="${ROUNDS:-1}" SECONDS_EACH="${SECONDS_EACH:-0.0001}"
fi
why=$(timeout 120 "$out/flowlua" -e 'local ok, m = pcall(function() flow.tensor({0}):to("cuda"):item() end)
    if not ok then print((tostring(m):gsub("^.-:%d+: ", ""))) end' 2>&1) || why="$out/flowlua ended with status $?: $why"
if [ "${GPU_DRY:-}" != 1 ] && command -v flock >/dev/null; then     # not beside the tests, whatever make -j does
    exec 9>"$out/gpu.lock"
    flock -w 600 9 || echo "bench-gpu: the GPU is in use by tests"
fi
if [ -n "$why" ]; then
    echo "bench-gpu: skipped: $why"
    exit 0
fi
if [ "${GPU_DRY:-}" = 1 ]; then
    card="emulated, no driver"
    file=$out/bench-gpu-dry.txt
    rm -f "$file"
else
    card=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1 || true)
    model=$(echo "${card:-unknown}" | cut -d, -f1 | tr -cs 'A-Za-z0-9\n' '-' | sed 's/^-//; s/-$//')
    file=$here/results/$model-$(date -u +%Y-%m-%d).txt
    mkdir -p "$here/results"
fi
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
toolkit=$(${nvcc:-true} --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')
commit=$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo "${FLOW_COMMIT:-unknown}")
groups=${GROUPS_OF_GPU:-gpu_limits gpu_train gpu_captured gpu_permute gpu_softmax gpu_elementwise gpu_chains gpu_reduce gpu_sort gpu_images gpu_launch gpu_matmul gpu_tf32 gpu_small
    gpu_shapes gpu_optim gpu_linalg gpu_copies gpu_memory gpu_ranks}
{
    echo "GPU: ${card:-unknown}; CUDA ${toolkit:-unknown}; commit $commit; $(date -u +%Y-%m-%dT%H:%M:%SZ)"
    # shellcheck disable=SC2086
    ROUNDS=${ROUNDS:-3} SECONDS_EACH=${SECONDS_EACH:-0.12} BENCH_LIMIT=${BENCH_LIMIT:-270} CASE_LIMIT=${CASE_LIMIT:-30} \
        sh "$here/run.sh" "$out" $groups 2>&1 || echo "bench-gpu: the benchmarks ended with an error"
    echo
} | tee -a "$file"
echo "appended to $file"
if [ -n "${OUT_LOGS:-}" ]; then
    mkdir -p "$OUT_LOGS"
    cp "$file" "$OUT_LOGS/"
fi
