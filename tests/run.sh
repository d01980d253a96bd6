#!/bin/sh
# run.sh OUT [SPEC...] -- runs the C tests and the specs of one build; the last line is the sum of all:
# "N passed, N failed, N skipped". A test program that dies counts as one failure. FLOW_TEST_DEVICE=cuda: the tensors of the
# specs are made there. Without SPEC the specs named by DEFERRED run once more where every elementwise result is deferred;
# those named by WITHOUT are left out. JOBS=2: two processes at once run eight specs each, and so on, instead of one process all.
set -u
out=$1
shift
passed=0 failed=0 skipped=0 deferred= jobs=${JOBS:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Adds the numbers of a line "P passed, F failed, S skipped".
add() {
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

if [ $# -eq 0 ]; then
    for test in "$out"/tests/*; do
        [ -x "$test" ] && [ -f "$test" ] || continue
        [ "$test" != "$out/tests/emulate" ] || continue     # run-emulated.sh has what it needs
        "$test" >"$folder/log" 2>&1
        status=$?
        line=$(tail -n 1 "$folder/log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p')
        if [ -n "$line" ]; then add $line; fi
        if [ $status -ne 0 ]; then
            cat "$folder/log"
            echo "$test: exit status $status"
            case "$line" in *" 0 "* | "") add 0 1 0 ;; esac
        fi
    done
    for spec in tests/*_spec.lua; do
        name=${spec#tests/}
        case " ${WITHOUT-} " in *" ${name%_spec.lua} "*) ;; *) set -- "$@" "$spec" ;; esac
    done
    for name in ${DEFERRED-autograd capture capture_replay capture_training elementwise elementwise_accuracy elementwise_bits elementwise_rules fuse layers nn optim recompute registry views}; do deferred="$deferred tests/${name}_spec.lua"; done
fi

# specs SPEC...: runs them, in one process or in JOBS at once, and adds what busted counts.
specs() {
    rm -f "$folder"/specs.*
    most=$#
    [ "$jobs" -eq 1 ] || most=8
    printf '%s\n' "$@" | xargs -n "$most" -P "$jobs" sh tests/run-busted.sh "$out" "$folder"
    for log in "$folder"/specs.*.log; do
        read -r status <"${log%.log}.status"
        line=$(sed -n 's/^\([0-9]*\) success[es]* \/ \([0-9]*\) failures* \/ \([0-9]*\) errors* \/ \([0-9]*\) pending.*/\1 \2 \3 \4/p' "$log" | tail -n 1)
        if [ -n "$line" ]; then
            # shellcheck disable=SC2086
            set -- $line
            add "$1" $(($2 + $3)) "$4"
            if [ "$status" -ne 0 ]; then cat "$log"; fi
        else
            cat "$log"
            echo "busted: exit status $status, no result"
            add 0 1 0
        fi
    done
}

specs "$@"
if [ -n "$deferred" ]; then
    FLOW_FUSE_FROM=1
    export FLOW_FUSE_FROM
    # shellcheck disable=SC2086
    specs $deferred
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
