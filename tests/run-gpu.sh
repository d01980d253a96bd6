#!/bin/sh
# run-gpu.sh OUT -- everything that a GPU can check of one build, in a few minutes: the specs of the CUDA device, the suite with
# its tensors on the GPU, two ranks that share it, and a sample of all kernels under compute-sanitizer. Without a GPU
# all of it is skipped and counted.
#
# Every file is a part: a process of its own with a limit of time, so that neither an error that takes the device away nor a
# hang costs more than one. The most telling parts come first; what has not begun after TEST_LIMIT seconds (270) is left out, and
# the table says so. A failed part shows its first lines; a table of the parts comes last, and then the sum: "N passed, N
# failed, N skipped".
#
#     PARTS=matmul sh tests/run-gpu.sh build      parts whose name matches (grep -E)
#     OUT_LOGS=folder sh tests/run-gpu.sh build   all that failed parts printed, in folder/test-gpu.log
#     JOBS=1                                      parts that run at once (4), where they may
#     GPU_DRY=1                                   on the emulation instead of a GPU (make emulated)
set -u
out=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM
unset FLOW_CUDA_EMULATED
if [ "${GPU_DRY:-}" = 1 ]; then export FLOW_CUDA_EMULATED=1; fi
if [ "${GPU_DRY:-}" != 1 ] && command -v flock >/dev/null; then     # not beside the benchmarks, whatever make -j does
    exec 9>"$out/gpu.lock"
    flock -w 600 9 || echo "test-gpu: the GPU is in use by benchmarks"
fi
deadline=$(($(date +%s) + ${TEST_LIMIT:-270}))
jobs=${JOBS:-4}
passed=0 failed=0 skipped=0 failures=0
count=0     # parts so far
first=1     # of the wave
: >"$folder/table"

# Files of tests/cuda in the order of what they tell about the others, then those not named here; the first ones take all memory or
# time, and run alone. nccl_spec wants the emulation.
alone="device engine"
device="copy elementwise fused reduce rows index matmul attention optim random sort scan scatter train graph registry bench"
for file in tests/cuda/*_spec.lua; do
    name=$(basename "$file" _spec.lua)
    case " $alone $device nccl " in *" $name "*) ;; *) device="$device $name" ;; esac
done
# Specs of the suite that say something about a device: what ops compute, how gradients, modules, optimizers, files and data
# behave. The others are about the program, the session, ranks and messages, and are the same everywhere.
suite="elementwise elementwise_accuracy elementwise_bits elementwise_rules fuse capture capture_replay capture_split capture_training capture_changes program reduce matmul autograd nn layers
    optim attention loss losses indexing views flip sort scan conv einsum shape dtype creation random save data registry"
ranks="global gradient inference optim checkpoint data train"

# ---- parts ----

# part NAME LIMIT COMMAND: notes a part of the wave: seconds it may take, and a line for the shell that prints a sum last.
part() {
    echo "$1" | grep -qE -e "${PARTS:-.}" || return 0
    count=$((count + 1))
    echo "$1" >"$folder/$count.name"
    echo "$2" >"$folder/$count.limit"
    echo "$3" >"$folder/$count.command"
}

# run FOLDER N DEADLINE: one part, unless the time is up.
cat >"$folder/run" <<'END'
n=$1/$2 began=$(date +%s) limit=$(cat "$1/$2.limit")
left=$(($3 - began))
[ "$left" -gt 0 ] || { echo left >"$n.status"; exit 0; }
[ "$left" -gt "$limit" ] || limit=$left
timeout -k 5 "$limit" sh "$n.command" >"$n.log" 2>&1 </dev/null
echo $? >"$n.status"
echo $(($(date +%s) - began)) >"$n.seconds"
END

# wave JOBS: runs the parts noted since the last one, so many at once, and adds them up.
wave() {
    [ "$first" -le "$count" ] || return 0
    seq "$first" "$count" | FLOW_THREADS=$((($(nproc) + $1 - 1) / $1)) xargs -P "$1" -I '{}' sh "$folder/run" "$folder" '{}' "$deadline"
    while [ "$first" -le "$count" ]; do
        result "$first"
        first=$((first + 1))
    done
}

row() { printf '  %-34s %5s passed %4s failed %4s skipped %4s s%s\n' "$@" >>"$folder/table"; }

# Adds up what the last line of a part counts; a part without one has failed.
result() {
    name=$(cat "$folder/$1.name") status=$(cat "$folder/$1.status")
    if [ "$status" = left ]; then
        skipped=$((skipped + 1))
        row "$name" 0 0 1 0 "  not run: the time is up"
        return
    fi
    note=
    line=$(tail -n 1 "$folder/$1.log" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$') || line="0 passed, 1 failed, 0 skipped"
    case $status in
        124 | 137) line="0 passed, 1 failed, 0 skipped" note="  no end in time" ;;
        0 | 1) ;;
        *) note="  exit status $status" ;;
    esac
    read -r p _ f _ s _ <<END
$line
END
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    row "$name" "$p" "$f" "$s" "$(cat "$folder/$1.seconds")" "$note"
    if [ "$f" -gt 0 ]; then show "$1"; fi
}

# Prints busted's report of failures, without the pending specs before them; of other programs everything.
from_failure() { awk '/^(Failure|Error) ->/ { on = 1 } on { print } !on { before = before $0 "\n" } END { if (!on) printf "%s", before }'; }

# The first lines of a failed part, fewer when many have failed; the last ones of a hang. Everything for the log.
show() {
    failures=$((failures + 1))
    lines=24
    [ "$failures" -le 4 ] || lines=8
    echo "== $name$note"
    case $note in
        *"no end"*) tail -n 6 "$folder/$1.log" | cut -c 1-200 ;;
        *) sed '$d' "$folder/$1.log" | grep -v '^$' | from_failure | head -n "$lines" | cut -c 1-200 ;;
    esac
    if [ -n "${OUT_LOGS:-}" ]; then
        mkdir -p "$OUT_LOGS"
        { echo "== $name$note"; tail -c 500000 "$folder/$1.log"; echo; } >>"$OUT_LOGS/test-gpu.log"
    fi
}

skip() {
    skipped=$((skipped + 1))
    printf '  %-34s skipped: %s\n' "$1" "$2" >>"$folder/table"
}

# ---- the parts ----

# The specs of all ops are cut in eight.
specs_of_device() {
    for name in "$@"; do
        case $name in
            registry) for i in 1 2 3 4 5 6 7 8; do part "tests/cuda/$name $i" 150 "FLOW_TEST_OPS=$i/8 sh tests/run.sh $out tests/cuda/${name}_spec.lua"; done ;;
            *) part "tests/cuda/$name" 150 "sh tests/run.sh $out tests/cuda/${name}_spec.lua" ;;
        esac
    done
}

specs_of_suite() {
    for name in $suite; do
        case $name in
            registry) for i in 1 2 3 4 5 6 7 8; do part "on the GPU: $name $i" 120 "FLOW_TEST_OPS=$i/8 FLOW_TEST_DEVICE=cuda sh tests/run.sh $out tests/${name}_spec.lua"; done ;;
            *) part "on the GPU: $name" 120 "FLOW_TEST_DEVICE=cuda sh tests/run.sh $out tests/${name}_spec.lua" ;;
        esac
    done
}

specs_of_ranks() {
    for name in $ranks; do
        part "2 ranks share it: $name" 100 "FLOW_TEST_DEVICE=cuda RANKS=2 RANKS_APART= RANKS_QUEUED= RANKS_LIMIT=90 \
            sh tests/run-ranks.sh $out tests/ranks/${name}_spec.lua"
    done
}

# Ranks with a GPU each, whose tensors NCCL moves.
specs_of_own_gpus() {
    gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
    [ "$gpus" -le 4 ] || gpus=4
    [ "$gpus" -ge 2 ] || { skip "ranks with a GPU each" "there is one GPU"; return; }
    for spec in tests/cuda/ranks/nccl_spec.lua tests/ranks/boxing_spec.lua tests/ranks/failure_spec.lua tests/ranks/poison_spec.lua tests/ranks/train_spec.lua; do
        part "$gpus ranks with a GPU each: $(basename "$spec" _spec.lua)" 150 "FLOW_TEST_DEVICE=cuda RANKS=$gpus RANKS_APART= RANKS_QUEUED= \
            RANKS_LIMIT=140 sh tests/run-ranks.sh $out $spec"
    done
}

# sanitized TOOL SETTINGS: the ops in as many slices as run side by side, each one count.
sanitized() {
    slices=$jobs at=1
    ops=$("$out/flowlua" -e 'print(#flow._testing.ops())')
    while [ $at -le $slices ]; do
        from=$(((at - 1) * ops / slices + 1)) to=$((at * ops / slices))
        part "$1, ops $from to $to" 120 "if $2 $sanitizer --tool $1 --error-exitcode 9 --print-limit 20 $out/flowlua tests/cuda/sample.lua $from $to
            then echo '1 passed, 0 failed, 0 skipped'; else echo '0 passed, 1 failed, 0 skipped'; fi"
        at=$((at + 1))
    done
}

# Why compute-sanitizer can say nothing here; nothing when it can.
no_sanitizer() {
    [ -n "$sanitizer" ] || { echo "it is not installed (part of the CUDA toolkit)"; return; }
    words=$(timeout 90 "$sanitizer" "$out/flowlua" -e 'print(flow.ones({4}):to("cuda"):sum():item())' 2>&1) && return
    echo "$words" | grep -i -m 1 -E 'not supported|unable to|failed to' || true
}

why=$(timeout 120 "$out/flowlua" -e 'local ok, m = pcall(function() flow.tensor({0}):to("cuda"):item() end)
    if not ok then print((tostring(m):gsub("^.-:%d+: ", ""))) end' 2>&1) || why="$out/flowlua ended with status $?: $why"
if [ -n "$why" ]; then
    part "tests/cuda" 200 "sh tests/run.sh $out tests/cuda/*_spec.lua"
    wave 1
    for name in "the suite with tensors on the GPU" "2 ranks that share the GPU" "ranks with a GPU each" "memcheck" "racecheck"; do skip "$name" "$why"; done
else
    # shellcheck disable=SC2086
    specs_of_device $alone
    wave 1
    # shellcheck disable=SC2086
    specs_of_device $device
    wave "$jobs"
    specs_of_ranks
    specs_of_suite
    wave "$jobs"
    specs_of_own_gpus
    wave 1
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda/compute-sanitizer/compute-sanitizer 2>/dev/null | head -n 1)
    obstacle=$(no_sanitizer)
    if [ -n "$obstacle" ]; then
        skip "compute-sanitizer" "$obstacle"
    else
        sanitized memcheck FLOW_CUSOLVER=none   # its factors are long series of its own kernels
        sanitized racecheck "FLOW_CUBLASLT=none FLOW_CUDNN=none FLOW_CUFFT=none FLOW_CUSOLVER=none"    # our kernels, not those of libraries
        wave "$jobs"
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
