#!/bin/sh
# Boots a systemd on FOLDER, so that tests can start the units: trial_boot.sh FOLDER
# Runs in separate namespaces (unshare --pid --mount --mount-proc --uts --ipc --cgroup --fork).
#
# A boot empties /tmp, loads modules and sets kernel variables, which must not affect this machine. Before systemd starts, the
# whole file system is therefore read-only, the folders that it writes to are in FOLDER or in memory, and none of the machine's
# units is enabled. If that is not possible, nothing is started (exit code 77).
set -eu
folder=$1

fail() {
    echo "not booted: $1" >&2
    exit 77
}

mount --make-rprivate / || fail "mounts cannot be made private"
mount --bind "$folder/etc" /etc
mount --bind "$folder/opt" /opt
mount --bind "$folder/lib" /var/lib
mount -t overlay -o "lowerdir=/usr,upperdir=$folder/usr,workdir=$folder/work" overlay /usr || fail "/usr cannot be copied on write"
mount -o remount,bind,ro / || fail "the file system cannot be made read-only"
for place in /tmp /run /dev/shm /var/tmp /var/log /var/cache /var/backups /usr/lib/systemd/system-generators \
    /usr/lib/systemd/system/sysinit.target.wants /usr/lib/systemd/system/sockets.target.wants \
    /usr/lib/systemd/system/timers.target.wants /usr/lib/systemd/system/local-fs.target.wants; do
    [ ! -d "$place" ] || mount -t tmpfs -o mode=1777 tmpfs "$place" || fail "cannot mount tmpfs on $place"
done
mkdir -p /var/cache/apt/archives/partial /var/log/apt
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys || fail "kernel variables cannot be protected"
mount -o remount,bind,ro /sys || fail "/sys cannot be protected"
# systemd sees its own control group as the root, and no controllers.
if [ -d /sys/fs/cgroup/systemd ]; then
    for tree in /sys/fs/cgroup/*; do
        ! mountpoint -q "$tree" || umount "$tree"
    done
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd || fail "cannot mount separate control groups"
else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup || fail "cannot mount separate control groups"
fi

for place in /root /var /home; do
    if touch "$place/.trial" 2>/dev/null; then fail "$place is writable"; fi
done
[ -z "$(ls -A /tmp)" ] || fail "/tmp is not separate"
[ -z "$(ls -A /usr/lib/systemd/system/sysinit.target.wants)" ] || fail "units of the machine are enabled"

# As on a booted machine, a unit sees what systemd mounts for it (its credentials). The outside is not a peer.
mount --make-rshared /
export container=docker
exec /lib/systemd/systemd --system --unit=basic.target --show-status=no --log-target=console --log-level=warning
