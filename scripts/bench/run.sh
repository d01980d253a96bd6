#!/bin/sh
# The benchmarks: flowlua beside PyTorch and Open MPI, in interleaved rounds.
#
#     sh scripts/bench/run.sh build                 everything (about ten minutes)
#     sh scripts/bench/run.sh build small grad      some groups (figures.lua lists them)
#     sh scripts/bench/run.sh build ranks2 cores    what concerns several ranks
#     ROUNDS=9 SECONDS_EACH=0.5 sh scripts/bench/run.sh build train
#
# Peers that are not installed are left out. The peer runs in the best configuration that is known: as many threads as
# cores, the OpenMP build of OpenBLAS (the pthread build fights with PyTorch's own threads) and no OPENBLAS_CORETYPE
# (which would force older instructions on it). Results are also appended to build/bench.jsonl.
set -eu
out=${1:-build}
[ $# -gt 0 ] && shift
here=$(dirname "$0")
unset OPENBLAS_CORETYPE FLOW_ENGINE FLOW_WORLD FLOW_RANK FLOW_SHARED FLOW_THREADS

for python in "${PYTHON:-python3}" /usr/bin/python3; do
    if "$python" -c 'import torch' 2>/dev/null; then
        BENCH_PYTHON=$python
        export BENCH_PYTHON
        break
    fi
done
[ -n "${BENCH_PYTHON:-}" ] || echo "PyTorch is not installed: no peer (python3-torch on Debian)" >&2
for folder in /usr/lib/*/openblas-openmp; do
    if [ -d "$folder" ]; then BENCH_PEER_LIBRARIES=$folder; fi
done
if [ -n "${BENCH_PEER_LIBRARIES:-}" ]; then
    export BENCH_PEER_LIBRARIES
else
    echo "OpenBLAS is not installed: PyTorch's matrix products are slow (libopenblas0-openmp on Debian)" >&2
fi

BENCH_FOLDER=$(mktemp -d)
export BENCH_FOLDER
trap 'rm -rf "$BENCH_FOLDER"' EXIT INT TERM
if command -v mpirun >/dev/null && command -v mpicc >/dev/null; then
    BENCH_MPI_PEER=$BENCH_FOLDER/peer
    export BENCH_MPI_PEER
    mpicc -O2 -o "$BENCH_MPI_PEER" "$here/peer.c"
else
    echo "Open MPI is not installed: no peer for several ranks (openmpi-bin and libopenmpi-dev on Debian)" >&2
fi
"$out/flowlua" "$here/compare.lua" "$out" "$@"
