#!/bin/sh
# First process of a guest, in the host's files under a tmpfs: mounts, modules, network, sshd, dockerd; then it only reaps.
# What differs between guests is in the file that the kernel command line names with guest_env=.
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o ptmxmode=0666,mode=620,gid=5 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /run/lock /home/spark
mount -t tmpfs -o mode=755 tmpfs /home/spark # an overlay cannot be exported over NFS
mount -t cgroup2 cgroup2 /sys/fs/cgroup

# The host's root may have a slow .bashrc, which bash reads for every ssh command.
sed -i 's|^root:.*|root:x:0:0:root:/home/spark:/bin/sh|' /etc/passwd

# shellcheck source=/dev/null
. "$(sed -n 's/.*guest_env=\([^ ]*\).*/\1/p' /proc/cmdline)" # NAME FOLDER MODULES NETDEVS
mkdir -p /lib/modules
mount --bind "$MODULES" /lib/modules
hostname "$NAME"
modprobe -a virtio_net virtio_blk ext4 overlay virtio_rng
ip link set lo up

# Netdevs are found by their MAC and named as on a Spark. NETDEVS: MAC NAME ADDRESS PEER, one a line.
echo "$NETDEVS" | while read -r mac netdev address peer; do
    for found in /sys/class/net/*; do
        [ "$(cat "$found/address")" = "$mac" ] || continue
        ip link set "${found##*/}" name "$netdev"
        ip addr add "$address" dev "$netdev"
        ip link set "$netdev" up
        [ -z "$peer" ] || ip route add "$peer" dev "$netdev"
    done
done

mkdir -p /var/lib/docker /home/spark/.ssh
mount -t ext4 /dev/vda /var/lib/docker
cp "$FOLDER/keys/id_ed25519" "$FOLDER/keys/known_hosts" /home/spark/.ssh/
chmod 700 /home/spark/.ssh
chmod 600 /home/spark/.ssh/*
setsid /usr/sbin/sshd -D -e -f "$FOLDER/sshd_config" </dev/null >/run/sshd.log 2>&1 &
setsid dockerd --bridge=none --iptables=false --ip6tables=false --storage-driver=overlay2 \
    </dev/null >/run/dockerd.log 2>&1 &
while ! docker version >/dev/null 2>&1; do
    kill -0 $! || { cat /run/dockerd.log; break; }
    sleep 0.3
done
echo "guest $NAME is ready"
exec tini -g -- sleep infinity
