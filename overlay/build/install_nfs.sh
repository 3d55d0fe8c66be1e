#!/bin/sh
# At image build: the programs of the weights' exporter, where the base lacks them. $1: kernel, ganesha, both or none.
set -eu
packages=""
case "${1:-kernel}" in
none) exit 0 ;;
kernel | ganesha | both) ;;
*)
    echo "NFS=$1 is none of kernel, ganesha, both, none" >&2
    exit 2
    ;;
esac
if [ "$1" != ganesha ] && ! command -v rpc.nfsd >/dev/null 2>&1; then
    packages="nfs-kernel-server"
fi
if [ "$1" != kernel ] && ! command -v ganesha.nfsd >/dev/null 2>&1; then
    packages="$packages nfs-ganesha nfs-ganesha-vfs"
fi
[ -n "$packages" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "this base has no apt-get and lacks: $packages. Use another base, or NFS=none with NFS_SHARE=0" >&2
    exit 1
fi
# No package may start a service while the image is built.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive
apt-get update
# shellcheck disable=SC2086
apt-get install --yes --no-install-recommends $packages
rm -rf /usr/sbin/policy-rc.d /var/lib/apt/lists/*
