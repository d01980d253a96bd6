#!/bin/sh
# run-ranks.sh OUT [SPEC...] -- runs the multi-rank specs of one build under mpirun: with 1, 2, 3 and 4 ranks, with 2 and 3
# once more without shared memory, as ranks on several hosts are, with 2 where every op is queued, and with 2 where all
# elementwise results are deferred. RANKS="2 3" chooses other numbers for all of these, RANKS_APART, RANKS_QUEUED and
# RANKS_DEFERRED for the last three ("": none). Every rank runs the same file
# (ranks/rank.lua); a file that takes longer than RANKS_LIMIT seconds (150) is ended. The last line is the sum of all: "N
# passed, N failed, N skipped". A build for ThreadSanitizer (make CONFIG=tsan all) wants OMP_NUM_THREADS=1.
set -u
out=$1
shift
[ $# -gt 0 ] || set -- tests/ranks/*_spec.lua
passed=0 failed=0 skipped=0
limit=${RANKS_LIMIT:-150}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export FLOW_TIMEOUT="${FLOW_TIMEOUT:-20}"
export FLOWLUA="$out/flowlua"
export RANKS_FOLDER="$folder"
flags=--oversubscribe
[ "$(id -u)" -ne 0 ] || flags="$flags --allow-run-as-root"

# Why several ranks cannot run here; nothing when they can.
obstacle() {
    command -v mpirun >/dev/null || { echo "mpirun is missing (apt install openmpi-bin)"; return; }
    [ -f "$out/flowlua-mpi.so" ] || echo "$out/flowlua-mpi.so is missing: this build has no transport"
}

# Prints the output of the ranks, without mpirun's standing texts about jobs that end early.
said() {
    grep -v -e '^-----' -e '^Primary job ' -e '^a non-zero exit code. Per user' -e '^mpirun detected that one' \
        -e '^the job to be terminated. The first' -e '^$' "$folder/log"
}

# job RANKS SPEC TITLE: one file on so many ranks.
job() {
    rm -f "$folder"/*
    launch="${MPIRUN:-mpirun} -n $1 $flags"
    [ "$1" -gt 1 ] || launch=
    began=$(date +%s.%N)
    # shellcheck disable=SC2086
    timeout -k 5 "$limit" $launch "$out/flowlua" tests/ranks/rank.lua "$folder" "$2" >"$folder/log" 2>&1 </dev/null
    status=$?
    took=$(echo "$began $(date +%s.%N)" | awk '{printf "%.1f", $2 - $1}')
    "$out/flowlua" tests/ranks/tally.lua "$folder" "$1" "$3" $status "$limit" >"$folder/tally"
    line=$(tail -n 1 "$folder/tally" | grep -E '^[0-9]+ [0-9]+ [0-9]+$') || line="0 1 0"
    sed '$d' "$folder/tally"
    read -r p f s <<END
$line
END
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if [ "$f" -gt 0 ]; then said | head -n 60; fi
    echo "$3: $p passed, $f failed, $s skipped in $took s"
}

# with COUNTS NOTE SPEC...: every file on each number of ranks.
with() {
    counts=$1 note=$2
    shift 2
    for n in $counts; do
        for spec in "$@"; do
            title="$(basename "$spec" .lua), $n rank$([ "$n" -eq 1 ] || echo s)$note"
            if [ "$n" -gt 1 ] && [ -n "$why" ]; then
                echo "skipped: $title: $why"
                skipped=$((skipped + 1))
            else
                job "$n" "$spec" "$title"
            fi
        done
    done
}

why=$(obstacle)
with "${RANKS-1 2 3 4}" "" "$@"
FLOW_SHARED=0
export FLOW_SHARED
with "${RANKS_APART-${RANKS:-2 3}}" " without shared memory" "$@"
unset FLOW_SHARED
FLOW_ENGINE=queued
export FLOW_ENGINE
with "${RANKS_QUEUED-${RANKS:-2}}" " queued" "$@"
unset FLOW_ENGINE
FLOW_FUSE_FROM=1
export FLOW_FUSE_FROM
with "${RANKS_DEFERRED-${RANKS:-2}}" " deferred" "$@"

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
