#!/bin/bash
# Becomes the parent of a node's process 1: joins the node's cgroups, which thereby become the root of its cgroup namespace, and makes
# the node's other namespaces. When this process is killed the kernel kills process 1, and with it the node.
# Arguments: path of the network namespace, the script that is process 1. The environment tells both the rest (node.ts).
set -eu
for group in $NODE_CGROUPS; do echo $$ >"$group/cgroup.procs"; done
exec nsenter --net="$1" unshare --pid --fork --kill-child --mount --uts --ipc --cgroup -- /bin/bash "$2"
