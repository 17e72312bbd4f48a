#!/bin/bash
# Process 1 of a node. Builds the node's root out of the machine's /usr and the node's own folders, moves into it, and keeps containerd,
# kubelet and perhaps kube-proxy running. Environment: NODE_NAME, NODE_FOLDER, NODE_PROGRAMS (folder), NODE_HIERARCHIES (of cgroups),
# NODE_PROXY (1 or nothing).
set -eu

root=$NODE_FOLDER/root
mkdir -p "$root"
mount -t tmpfs -o size=16m,mode=755 root "$root"
cd "$root"
mkdir usr kube etc var opt tmp pki run dev proc sys home root mnt .machine
for name in bin sbin lib lib64; do ln -s "usr/$name" "$name"; done

# The machine's programs, which the node may not change; nothing else of the machine's disk.
mount --rbind /usr usr
mount -o remount,bind,ro usr
mount --bind "$NODE_PROGRAMS" kube
mount -o remount,bind,ro kube
# The node's disk: what a reboot keeps.
for name in etc var opt tmp pki; do mount --bind "$NODE_FOLDER/$name" "$name"; done
# What a reboot clears.
mount -t tmpfs -o mode=755 run run
mkdir run/lock run/netns run/keep
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t bpf bpf sys/fs/bpf

# Devices that give nothing of the machine away, however privileged a pod is.
mount -t tmpfs -o mode=755,size=64k dev dev
mkdir dev/pts dev/shm dev/mqueue dev/net
device() { mknod -m 666 "dev/$1" c "$2" "$3"; }
device null 1 3
device zero 1 5
device full 1 7
device random 1 8
device urandom 1 9
device kmsg 1 11
device tty 5 0
device net/tun 10 200
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o size=64m shm dev/shm
mount -t mqueue mqueue dev/mqueue

# Mounted from within the cgroup namespace, each hierarchy begins at the node's own cgroup.
mount -t tmpfs -o mode=755 cgroup sys/fs/cgroup
for name in $NODE_HIERARCHIES; do
  mkdir "sys/fs/cgroup/$name"
  case $name in
    unified) mount -t cgroup2 cgroup2 "sys/fs/cgroup/$name" ;;
    systemd) mount -t cgroup -o none,name=systemd cgroup "sys/fs/cgroup/$name" ;;
    *) mount -t cgroup -o "$name" cgroup "sys/fs/cgroup/$name" ;;
  esac
done

# Settings of the whole machine that kubelet wants to change: the node changes copies. And each boot has an id of its own.
mkdir run/settings
private() {
  echo "$2" >"run/settings/${1//\//.}"
  mount --bind "run/settings/${1//\//.}" "proc/sys/$1"
}
private vm/overcommit_memory 1
private vm/panic_on_oom 0
private kernel/panic 10
private kernel/panic_on_oops 1
private kernel/keys/root_maxkeys 1000000
private kernel/keys/root_maxbytes 25000000
private kernel/random/boot_id "$(cat /proc/sys/kernel/random/uuid)"

hostname "$NODE_NAME"
pivot_root . .machine
umount -l /.machine
rmdir /.machine
# Pods may make mounts that the node sees (mountPropagation: Bidirectional).
mount --make-rshared /
export PATH=/kube:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root
cd /
set +e

# Its process id is in /run/keep; when it ends it is started again a second later.
keep() {
  local name=$1
  while true; do
    "$@" >>"/var/log/$name.log" 2>&1 &
    echo $! >"/run/keep/$name.pid"
    wait $!
    echo "--- $name ended with code $?; it is started again" >>"/var/log/$name.log"
    sleep 1
  done
}

keep containerd --config /etc/containerd.toml &
for ((tries = 0; tries < 600; tries++)); do
  [[ -S /run/containerd/containerd.sock ]] && break
  sleep 0.1
done
keep kubelet --config=/etc/kubelet.json --kubeconfig=/pki/kubelet.conf --hostname-override="$NODE_NAME" \
  --node-ip="$(cat /etc/node-ip)" --root-dir=/var/lib/kubelet --v=2 &
[[ -z ${NODE_PROXY:-} ]] || keep kube-proxy --config=/etc/kube-proxy.json --hostname-override="$NODE_NAME" --v=2 &
# As process 1 it also buries whoever loses its parent.
while true; do wait; sleep 1; done
