#!/bin/sh
# Builds a package from a wheelhouse: build.sh PYTHON WHEELHOUSE FOLDER
#
# It is for the processor and the distribution of this machine, whose own python3 has PYTHON's minor version. One commit gives one
# package, byte by byte. Bytecode is made on the target.
set -eu
umask 022
python=$1 wheelhouse=$2 folder=$3
cd "$(dirname "$0")/.."

home=/opt/lab-agent
minor=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
glibc=$("$python" -c 'import platform; print(platform.libc_ver()[1])')
version=$(basename "$wheelhouse"/lab_agent-*.whl | cut -d- -f2)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2> /dev/null || date +%s)}
export SOURCE_DATE_EPOCH
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

# The environment, with pip for adapters that are packages of their own; then as if it had been made in its place.
"$python" -m venv "$root$home"
"$root$home/bin/python" -m pip --disable-pip-version-check install --quiet --no-index --no-compile \
    --find-links "$wheelhouse" "lab-agent==$version"
"$root$home/bin/python" -m pip --disable-pip-version-check uninstall --quiet --yes setuptools
rm "$root$home"/bin/activate* "$root$home"/bin/Activate.ps1
find "$root$home" -name __pycache__ -prune -exec rm -rf {} +
ln -sf "/usr/bin/$minor" "$root$home/bin/python"
ln -sf python "$root$home/bin/python3"
ln -sf python "$root$home/bin/$minor"
find "$root$home/bin" -type f -exec sed -i "1s|^#!.*|#!$home/bin/python|" {} +
# Checksums of these programs are of what pip wrote.
find "$root$home/lib" -name RECORD -exec sed -i 's|^\(\.\./\.\./\.\./bin/[^,]*\),.*|\1,,|' {} +
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' > "$root$home/pyvenv.cfg"
if grep -rIl -e "$root" -e "$PWD" "$root$home"; then
    echo "these files name folders of this machine" >&2
    exit 1
fi

mkdir -p "$root/usr/bin" "$root/usr/sbin" "$root/usr/lib/systemd/system" "$root/usr/lib/sysusers.d" "$root/usr/lib/tmpfiles.d"
ln -s "$home/bin/lab-agent" "$home/bin/lab-sandbox" "$root/usr/bin/"
ln -s "$home/bin/lab-agentctl" "$root/usr/sbin/"
cp systemd/*.service systemd/*.target systemd/*.timer "$root/usr/lib/systemd/system/"
cp systemd/sysusers.conf "$root/usr/lib/sysusers.d/lab-agent.conf"
cp systemd/tmpfiles.conf "$root/usr/lib/tmpfiles.d/lab-agent.conf"
mkdir -p "$root/usr/share/doc/lab-agent"
cp LICENSE "$root/usr/share/doc/lab-agent/copyright"
# What a laboratory changes, and an upgrade keeps. The settings themselves are written by `lab-agent init`.
"$python" -c 'import sys, pathlib
from lab_agent.cli.init_files import create_mappings
create_mappings(pathlib.Path(sys.argv[1]))' "$root/etc/lab-agent/mappings"
chmod -R u=rwX,go=rX "$root"

mkdir "$root/DEBIAN"
cp debian/postinst debian/prerm debian/postrm "$root/DEBIAN/"
chmod 755 "$root/DEBIAN"/p*
(cd "$root" && find etc -type f | sed 's|^|/|' | sort > DEBIAN/conffiles)
(cd "$root" && find etc opt usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
cat > "$root/DEBIAN/control" <<CONTROL
Package: lab-agent
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The lab-agent developers
Section: misc
Priority: optional
Depends: $minor, libc6 (>= $glibc), systemd (>= 250)
Installed-Size: $(du -sk --apparent-size "$root" | cut -f1)
Description: laboratory's end of an HL7 FHIR STU3 order exchange
 Fetches orders from an exchange service, hands them to the laboratory's
 systems and delivers their results. \`lab-agent init --systemd\` sets it up.
CONTROL
dpkg-deb -Zzstd --root-owner-group --build "$root" "$folder/lab-agent_${version}_$(dpkg --print-architecture).deb"
