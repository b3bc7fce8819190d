#!/usr/bin/env bash
# Installs the Debian packages that the tests under the tag `peers` need. Run as root. What Maven, npm, PyPI and the Go
# module proxy have is fetched by the tests themselves.
set -euo pipefail
packages=(kcat)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
