#!/bin/sh
# The benchmarks: flowlua beside PyTorch and Open MPI, in interleaved rounds.
#
#     sh scripts/bench/run.sh build                 everything (about ten minutes)
#     sh scripts/bench/run.sh build small grad      some groups (figures.lua lists them)
#     sh scripts/bench/run.sh build ranks2 cores    what concerns several ranks
#     SWEEP_SIZES=1m sh scripts/bench/run.sh build sweep    all ops of a kind; what is slower (cases/sweep.lua)
#     ROUNDS=9 SECONDS_EACH=0.5 sh scripts/bench/run.sh build train
#
# Peers that are not installed are left out. The peer runs in the best configuration that is known: as many threads as
# cores, the OpenMP build of OpenBLAS (the pthread build fights with PyTorch's own threads) and no OPENBLAS_CORETYPE
# (which would force older instructions on it). Results are also appended to build/bench.jsonl.
set -eu
out=${1:-build}
[ $# -gt 0 ] && shift
here=$(dirname "$0")
unset OPENBLAS_CORETYPE FLOW_ENGINE FLOW_FUSE FLOW_FUSE_FROM FLOW_WORLD FLOW_RANK FLOW_SHARED FLOW_THREADS

# PyTorch may lie beside libraries that were packed for flowlua (pack-gpu.sh), but does not want them.
own_libraries=${FLOW_PACK:+${FLOW_PACK_LIBRARIES:-}}
for python in "${PYTHON:-python3}" /usr/bin/python3; do
    if BENCH_TORCH=$(LD_LIBRARY_PATH=${own_libraries-${LD_LIBRARY_PATH:-}} timeout 150 "$python" -c 'import torch; print(torch.__version__)' 2>/dev/null); then
        BENCH_PYTHON=$python
        export BENCH_PYTHON BENCH_TORCH
        break
    fi
done
[ -n "${BENCH_PYTHON:-}" ] || echo "PyTorch is not installed: no peer (python3-torch on Debian)" >&2

BENCH_FOLDER=$(mktemp -d)
export BENCH_FOLDER

# Ends what still runs: sides are sessions of their own, which no signal of a terminal or of `timeout` reaches.
clean() {
    for file in "$BENCH_FOLDER"/*.pid; do
        [ ! -f "$file" ] || kill -s KILL -- "-$(cat "$file")" 2>/dev/null || true
    done
    rm -rf "$BENCH_FOLDER"
}
trap clean EXIT
trap 'exit 1' INT TERM

# Sets the libraries that the CPU benchmarks compare with, besides PyTorch.
peers_of_cpu() {
    for folder in /usr/lib/*/openblas-openmp; do
        if [ -d "$folder" ]; then BENCH_PEER_LIBRARIES=$folder; fi
    done
    if [ -n "${BENCH_PEER_LIBRARIES:-}" ]; then
        export BENCH_PEER_LIBRARIES
    else
        echo "OpenBLAS is not installed: PyTorch's matrix products are slow (libopenblas0-openmp on Debian)" >&2
    fi
    if command -v mpirun >/dev/null && command -v mpicc >/dev/null; then
        BENCH_MPI_PEER=$BENCH_FOLDER/peer
        export BENCH_MPI_PEER
        mpicc -O2 -o "$BENCH_MPI_PEER" "$here/peer.c"
    else
        echo "Open MPI is not installed: no peer for several ranks (openmpi-bin and libopenmpi-dev on Debian)" >&2
    fi
}
case " $*" in
    *" gpu_"*) ;;
    *) peers_of_cpu ;;
esac
"$out/flowlua" "$here/compare.lua" "$out" "$@"
