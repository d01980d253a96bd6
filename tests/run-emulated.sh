#!/bin/sh
# run-emulated.sh OUT [SPEC...] -- the specs of the CUDA device (tests/cuda) where there need not be one: the kernels of one build
# run on the CPU, first each op as it is issued, then products through a stand-in for cuBLASLt, convolutions through one for cuDNN
# (deferred), then with everything deferred to random moments that the rules of streams allow, then with chains of elementwise ops as
# kernels that a stand-in for NVRTC compiles; NVRTC itself compiles them too, where it is found. Fourier transforms and factors of matrices always
# go through stand-ins for cuFFT and cuSOLVER.
# Last the collectives of ranks that have an emulated GPU each, through a stand-in for NCCL.
# The last line is the sum: "N passed, N failed, N skipped". Builds that say more: CONFIG=checked (bounds, alignment, races in shared
# memory, host memory that a GPU does not reach), CONFIG=asan (arrays of kernels, what the host code of the plug-in does).
set -u
export ASAN_OPTIONS="${ASAN_OPTIONS-detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS-halt_on_error=1:print_stacktrace=1}"
out=$1
export FLOW_CUFFT="$out/emulated/fake_cufft.so" FLOW_CUSOLVER="$out/emulated/fake_cusolver.so"
shift
passed=0 failed=0 skipped=0
log=$(mktemp)
kernels=$(mktemp -d)
trap 'rm -rf "$log" "$kernels"' EXIT
if [ ! -f "$out/emulated/flowlua-cuda.so" ]; then
    echo "skipped: $out/emulated/flowlua-cuda.so was not built: there is no CUDA toolkit"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
# Prints the log, and adds up its last line.
count() {
    cat "$log"
    echo "$1: $(tail -n 1 "$log") in $(($(date +%s) - began)) s"
    read -r p _ f _ s _ <<END
$(tail -n 1 "$log" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' || echo 0 passed, 1 failed, 0 skipped)
END
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

whole=$#
for mode in 1 cublaslt cudnn deferred; do
    if [ "$whole" -eq 0 ]; then
        # deferred execution concerns the order of things, not what a kernel computes
        case $mode in
        1) set -- tests/cuda/*_spec.lua tests/cuda_runtime_spec.lua ;;
        cublaslt) set -- tests/cuda/matmul_spec.lua tests/cuda/conv_spec.lua tests/cuda/train_spec.lua tests/cuda/graph_spec.lua ;;
        cudnn) set -- tests/cuda/conv_spec.lua ;;
        deferred) set -- tests/cuda/engine_spec.lua tests/cuda/device_spec.lua tests/cuda/train_spec.lua tests/cuda/graph_spec.lua tests/cuda/linalg_spec.lua ;;
        esac
    fi
    began=$(date +%s)
    case $mode in
    cublaslt) FLOW_CUBLASLT=$out/emulated/fake_cublaslt.so FLOW_CUDA_EMULATED=1 sh tests/run.sh "$out" "$@" >"$log" 2>&1 ;;
    cudnn) FLOW_CUDNN=$out/emulated/fake_cudnn.so FLOW_CUDA_EMULATED=deferred sh tests/run.sh "$out" "$@" >"$log" 2>&1 ;;
    *) FLOW_CUDA_EMULATED=$mode sh tests/run.sh "$out" "$@" >"$log" 2>&1 ;;
    esac
    count "tests/cuda, emulated ($mode)"
done
if [ "$whole" -eq 0 ]; then
    for mode in 1 deferred; do
        began=$(date +%s)
        set -- tests/fuse_spec.lua tests/capture_spec.lua tests/capture_replay_spec.lua tests/capture_split_spec.lua tests/capture_training_spec.lua
        [ "$mode" = deferred ] || set -- "$@" tests/program_spec.lua
        FLOW_CUDA_EMULATED=$mode FLOW_TEST_DEVICE=cuda sh tests/run.sh "$out" "$@" >"$log" 2>&1
        count "chains and captures, emulated ($mode)"
    done
    began=$(date +%s)
    real=${FLOW_FAKE_NVRTC_REAL-$(ls /usr/local/cuda/lib64/libnvrtc.so 2>/dev/null)}
    XDG_CACHE_HOME=$kernels FLOW_NVRTC=$out/emulated/fake_nvrtc.so FLOW_FAKE_NVRTC_REAL=$real FLOW_FAKE_NVRTC_LOG=$kernels/log \
        FLOW_CUDA_EMULATED=1 \
        sh tests/run.sh "$out" tests/cuda/fused_spec.lua >"$log" 2>&1
    count "chains as kernels"
    if ! grep -q compiled "$kernels/log" || grep -A 50 refused "$kernels/log"; then failed=$((failed + 1)); fi
    began=$(date +%s)
    FLOW_CUDA_EMULATED=1 FLOW_CUDA_EMULATED_DEVICES=4 FLOW_NCCL="$out/emulated/fake_nccl.so" FLOW_TEST_DEVICE=cuda RANKS="2 3 4" RANKS_APART=2 \
        RANKS_QUEUED='' RANKS_DEFERRED='' sh tests/run-ranks.sh "$out" tests/cuda/ranks/*_spec.lua tests/ranks/inference_spec.lua tests/ranks/failure_spec.lua tests/ranks/poison_spec.lua >"$log" 2>&1
    count "ranks with an emulated GPU each"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
