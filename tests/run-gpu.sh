#!/bin/sh
# run-gpu.sh OUT -- everything that a GPU can check of one build, in a few minutes: the specs of the CUDA device, the suite with
# its tensors on the GPU, two ranks that share it, and a sample of all kernels under compute-sanitizer. Where there is no GPU all
# of it is skipped and counted. A table of the parts comes last, and then the sum: "N passed, N failed, N skipped".
set -u
out=$1
passed=0 failed=0 skipped=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset FLOW_CUDA_EMULATED
: >"$folder/table"

# Specs of the suite that say something about a device: what ops compute, how gradients, modules, optimizers, files and data
# behave. The others are about the program, the session, ranks and messages, and are the same everywhere.
suite="attention autograd creation data dtype elementwise indexing loss losses matmul nn optim random reduce registry save shape views"

# part NAME COMMAND...: runs it, adds up what its last line counts, and notes a row of the table.
part() {
    name=$1
    shift
    began=$(date +%s)
    "$@" >"$folder/log" 2>&1
    line=$(tail -n 1 "$folder/log" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' || echo "0 passed, 1 failed, 0 skipped")
    read -r p _ f _ s _ <<END
$line
END
    [ "$f" -eq 0 ] || sed '$d' "$folder/log"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '  %-44s %6d passed %4d failed %4d skipped %5d s\n' "$name" "$p" "$f" "$s" $(($(date +%s) - began)) >>"$folder/table"
}

skip() {
    skipped=$((skipped + 1))
    printf '  %-44s skipped: %s\n' "$1" "$2" >>"$folder/table"
}

the_suite() {
    specs=
    for name in $suite; do specs="$specs tests/${name}_spec.lua"; done
    # shellcheck disable=SC2086
    FLOW_TEST_DEVICE=cuda sh tests/run.sh "$out" $specs
}

two_ranks() {
    FLOW_TEST_DEVICE=cuda RANKS=2 RANKS_APART='' RANKS_QUEUED='' sh tests/run-ranks.sh "$out" tests/ranks/global_spec.lua \
        tests/ranks/gradient_spec.lua tests/ranks/inference_spec.lua tests/ranks/optim_spec.lua tests/ranks/checkpoint_spec.lua \
        tests/ranks/data_spec.lua tests/ranks/train_spec.lua
}

# sanitizer TOOL: one count for the whole sample.
sanitizer() {
    if timeout 240 compute-sanitizer --tool "$1" --error-exitcode 9 "$out/flowlua" tests/cuda/sample.lua; then
        echo "1 passed, 0 failed, 0 skipped"
    else
        echo "0 passed, 1 failed, 0 skipped"
    fi
}

why=$("$out/flowlua" -e 'local ok, m = pcall(function() flow.tensor({0}):to("cuda"):item() end)
    if not ok then print((tostring(m):gsub("^.-:%d+: ", ""))) end' 2>&1)
part "tests/cuda" sh tests/run.sh "$out" tests/cuda/*_spec.lua
if [ -n "$why" ]; then
    for name in "the suite with tensors on the GPU" "2 ranks that share the GPU" "memcheck" "racecheck"; do skip "$name" "$why"; done
else
    part "the suite with tensors on the GPU" the_suite
    part "2 ranks that share the GPU" two_ranks
    if command -v compute-sanitizer >/dev/null; then
        part "compute-sanitizer memcheck, all ops" sanitizer memcheck
        part "compute-sanitizer racecheck, all ops" sanitizer racecheck
    else
        skip "compute-sanitizer" "it is not installed (part of the CUDA toolkit)"
    fi
fi

echo
if [ -z "$why" ]; then
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 | sed 's/, /, driver /'
else
    echo "no GPU: $why"
fi
cat "$folder/table"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
