#!/bin/sh
# run-busted.sh OUT FOLDER SPEC... -- runs these specs in one process of a build. The output of busted and its exit
# status go to files of the folder, specs.N.log and specs.N.status: several may run at once (run.sh adds them up).
out=$1 folder=$2
shift 2
FLOWLUA=$out/flowlua busted --lua="$out/flowlua" ${FLOW_TEST_DEVICE:+--helper=tests/on_device.lua} -o plainTerminal --pattern=_spec "$@" >"$folder/specs.$$.log" 2>&1
echo $? >"$folder/specs.$$.status"
