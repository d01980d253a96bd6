#!/bin/sh
# run-hosts.sh OUT [SPEC...] -- runs the multi-rank specs of one build on two hosts: network namespaces of this machine, each with a
# host name of its own and joined by a virtual cable, on which mpirun starts the ranks in turn. Wants root and `ip` (iproute2);
# where these are not to be had everything is skipped and counted. RANKS ("2 3 4") chooses the numbers of ranks. The last line is
# the sum of all: "N passed, N failed, N skipped".
set -u
out=$1
shift
me=fl$$
folder=$(mktemp -d)

clean_up() {
    for i in 1 2; do ip netns delete "$me-$i" 2>/dev/null; done
    rm -rf "$folder"
}
trap clean_up EXIT

# Two namespaces at the ends of a cable; says what fails.
lay_cable() {
    command -v ip >/dev/null || { echo "ip is missing (apt install iproute2)"; return 1; }
    for i in 1 2; do ip netns add "$me-$i" 2>&1 || return 1; done
    ip link add "${me}a" netns "$me-1" type veth peer name "${me}b" netns "$me-2" 2>&1 || return 1
    for end in 1a 2b; do
        i=${end%?} cable=$me${end#?}
        ip -n "$me-$i" addr add "10.213.0.$i/24" dev "$cable" && ip -n "$me-$i" link set "$cable" up && ip -n "$me-$i" link set lo up
    done 2>&1
}

if ! why=$(lay_cable); then
    echo "skipped: two hosts: $(echo "$why" | head -n 1)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

# The agent by which mpirun reaches the other host: [OPTION...] ADDRESS COMMAND...
cat >"$folder/agent" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
i=\${1##*.}
shift
exec ip netns exec $me-\$i unshare --uts sh -c "hostname $me-host\$i; \$*"
END
cat >"$folder/mpirun" <<END
#!/bin/sh
exec ip netns exec $me-1 unshare --uts sh -c 'hostname $me-host1; exec mpirun "\$@"' sh --mca plm_rsh_agent "$folder/agent" \\
    --mca oob_tcp_if_include 10.213.0.0/24 --mca btl_tcp_if_include 10.213.0.0/24 --host 10.213.0.1:8,10.213.0.2:8 --map-by node \\
    -x FLOWLUA -x FLOW_TIMEOUT -x RANKS_FOLDER "\$@"
END
chmod 755 "$folder/agent" "$folder/mpirun"
MPIRUN="$folder/mpirun" RANKS="${RANKS:-2 3 4}" RANKS_APART='' RANKS_QUEUED='' RANKS_DEFERRED='' sh tests/run-ranks.sh "$out" "$@"
