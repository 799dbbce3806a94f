#!/bin/sh
# Boots a systemd over FOLDER, so that the units can be started for real: trial_boot.sh FOLDER
# Called in namespaces of its own (unshare --pid --mount --mount-proc --uts --ipc --cgroup --fork).
#
# A boot empties /tmp, loads modules and sets kernel variables. None of that may be felt outside: before systemd starts, the whole
# file system is read-only here, the places that it writes to are FOLDER's or in memory, and no unit of the machine is
# wanted by anything. Where that cannot be had, nothing is started (exit code 77).
set -eu
folder=$1

refuse() {
    echo "not booted: $1" >&2
    exit 77
}

mount --make-rprivate / || refuse "mounts cannot be made private"
mount --bind "$folder/etc" /etc
mount --bind "$folder/opt" /opt
mount --bind "$folder/lib" /var/lib
while read -r from to; do
    mount --bind "$from" "$to"
    mount -o remount,bind,ro "$to"
done < "$folder/shown"
mount -o remount,bind,ro / || refuse "the file system cannot be made read-only"
for place in /tmp /run /dev/shm /var/tmp /var/log /usr/lib/systemd/system-generators \
    /usr/lib/systemd/system/sysinit.target.wants /usr/lib/systemd/system/sockets.target.wants \
    /usr/lib/systemd/system/timers.target.wants /usr/lib/systemd/system/local-fs.target.wants; do
    [ ! -d "$place" ] || mount -t tmpfs -o mode=1777 tmpfs "$place" || refuse "no memory over $place"
done
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys || refuse "kernel variables cannot be protected"
mount -o remount,bind,ro /sys || refuse "/sys cannot be protected"
# The manager sees its own control group as the root of all, and of the controllers none.
if [ -d /sys/fs/cgroup/systemd ]; then
    for tree in /sys/fs/cgroup/*; do
        ! mountpoint -q "$tree" || umount "$tree"
    done
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd || refuse "no control groups of its own"
else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup || refuse "no control groups of its own"
fi

for place in /usr /root /var /home; do
    if touch "$place/.trial" 2>/dev/null; then refuse "$place can be written"; fi
done
[ -z "$(ls -A /tmp)" ] || refuse "/tmp is not a place of its own"
[ -z "$(ls -A /usr/lib/systemd/system/sysinit.target.wants)" ] || refuse "the machine's units are wanted"

# As on a machine that has booted: what the manager mounts for a unit (its credentials) is seen by it. Nobody outside is a peer.
mount --make-rshared /
export container=docker
exec /lib/systemd/systemd --system --unit=basic.target --show-status=no --log-target=console --log-level=warning
