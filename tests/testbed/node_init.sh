#!/bin/sh
# First process of a simulated Spark: runs in its own mount, pid, net, uts and ipc namespaces, gives them a Spark's
# view of the machine, says `ready`, and then only reaps. Every mount here vanishes with the namespace.
# $1: the node's folder on the host   $2: its hostname   $3 …: folders that stay in view wherever they lie
set -eu
node=$1 name=$2
shift 2
mount --make-rprivate /
mount -t proc proc /proc
hostname "$name"
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward # as on a node whose dockerd manages its own rules

# A new network namespace needs its own sysfs; dockerd needs the cgroup tree that the old one carried.
mount --rbind /sys/fs/cgroup "$node/mnt/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$node/mnt/cgroup" /sys/fs/cgroup
umount -l "$node/mnt/cgroup"
mount --bind "$node/sys-class" /sys/class
mount --bind "$node/meminfo" /proc/meminfo

# Its own /dev: /dev/infiniband and a private /dev/shm without a trace in the host's.
dev=$node/mnt/dev
mount -t tmpfs -o mode=755,size=64k tmpfs "$dev"
mkdir -p "$dev/pts" "$dev/shm" "$dev/mqueue" "$dev/infiniband"
mknod -m 666 "$dev/null" c 1 3
mknod -m 666 "$dev/zero" c 1 5
mknod -m 666 "$dev/full" c 1 7
mknod -m 666 "$dev/random" c 1 8
mknod -m 666 "$dev/urandom" c 1 9
mknod -m 666 "$dev/tty" c 5 0
mknod -m 600 "$dev/console" c 5 1
mknod -m 666 "$dev/fuse" c 10 229
mknod -m 666 "$dev/infiniband/rdma_cm" c 1 3
for number in 0 1 2 3; do mknod -m 666 "$dev/infiniband/uverbs$number" c 1 3; done
ln -s pts/ptmx "$dev/ptmx"
ln -s /proc/self/fd "$dev/fd"
ln -s fd/0 "$dev/stdin"
ln -s fd/1 "$dev/stdout"
ln -s fd/2 "$dev/stderr"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$dev/shm"
mount -t mqueue mqueue "$dev/mqueue"
mount --move "$dev" /dev

# Folders that nodes must not share.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/lock
# A checkout or an interpreter below one of them would be hidden: held open here, bound again there.
number=0
for folder in "$@"; do
    number=$((number + 1))
    mkdir -p "$node/mnt/kept$number"
    mount --rbind "$folder" "$node/mnt/kept$number"
done
for name in tmp var/tmp home; do mount --bind "$node/fs/$name" "/$name"; done
number=0
for folder in "$@"; do
    number=$((number + 1))
    mkdir -p "$folder"
    mount --rbind "$node/mnt/kept$number" "$folder"
    umount -l "$node/mnt/kept$number"
done
# An overlay, not binds of single files: a package or useradd on the host replaces /etc/passwd, and a bind of it is gone.
mkdir -p "$node/mnt/etc"
mount -t overlay -o "lowerdir=/etc,upperdir=$node/etc,workdir=$node/mnt/etc" overlay /etc
mount -t overlay -o "lowerdir=$node/bin:/usr/local/bin" overlay /usr/local/bin
if [ -e "$node/registry/lower" ]; then
    layers="lowerdir=$(cat "$node/registry/lower"),upperdir=$node/registry/upper,workdir=$node/registry/work"
    mount -t overlay -o "$layers" overlay "$node/registry/store"
fi

echo ready
exec >"$node/log/init.log" 2>&1 </dev/null
cd /
exec tini -g -- sleep infinity
