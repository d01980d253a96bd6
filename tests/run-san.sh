#!/bin/sh
# run-san.sh TSAN_OUT ASAN_OUT [SPEC...] -- the C tests of threads and of shared memory under ThreadSanitizer, everything
# under AddressSanitizer and UBSan; of the multi-rank specs the broadest, unless specs are named. Reports go to files, so
# that those of programs that specs start are not lost with their output; any report is a failure. The last line is the
# sum: "N passed, N failed, N skipped".
set -u
tsan=$1 asan=$2
shift 2
passed=0 failed=0 skipped=0

# Adds the sum that closes a log; a log without one is a failure.
add_counts() {
    line=$(tail -n 1 "$1" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
    read -r p f s <<END
${line:-0 1 0}
END
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

for test in "$tsan"/tests/test_*; do
    case $test in *.d | *.o) continue ;; esac
    if TSAN_OPTIONS=halt_on_error=1 OMP_NUM_THREADS=1 "$test"; then passed=$((passed + 1)); else
        echo "$test failed under ThreadSanitizer"
        failed=$((failed + 1))
    fi
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# intercept_tls_get_addr: the thread-local memory of libraries opened late is misread by gcc's LeakSanitizer, which dies of it
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=0:allocator_may_return_null=1:intercept_tls_get_addr=0:log_path="$folder/asan"
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.supp:print_suppressions=0:use_poisoned=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path="$folder/asan"
# tensors without bytes have nothing that a sanitizer looks at; many specs wait for ranks that fail, or end by time-out
JOBS=${JOBS:-2} WITHOUT=meta_registry DEFERRED="autograd fuse views" sh tests/run.sh "$asan" "$@" >"$folder/log" 2>&1 || true
cat "$folder/log"
if [ $# -eq 0 ]; then
    # Open MPI keeps memory until the end
    ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0" RANKS=3 RANKS_APART=2 RANKS_QUEUED=2 RANKS_DEFERRED=2 sh tests/run-ranks.sh "$asan" tests/ranks/global_spec.lua \
        tests/ranks/metamorphic_spec.lua tests/ranks/gradient_spec.lua tests/ranks/poison_spec.lua tests/ranks/optim_spec.lua \
        tests/ranks/checkpoint_spec.lua >"$folder/ranks" 2>&1 || true
    cat "$folder/ranks"
    add_counts "$folder/ranks"
fi
for report in "$folder"/asan.*; do
    [ -s "$report" ] || continue
    cat "$report"
    failed=$((failed + 1))
done
add_counts "$folder/log"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
