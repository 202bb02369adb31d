#!/usr/bin/env bash
# Puts prometheus and promtool where the test looks, target/prometheus/usr/bin, out
# of Debian's package: unpacked, not installed, so that no service starts. Does
# nothing where both are there or on the PATH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=${CARGO_TARGET_DIR:-target}/prometheus
if command -v prometheus promtool > /dev/null || [ -x "$folder/usr/bin/promtool" ]; then
  exit 0
fi
mkdir -p "$folder"
cd "$folder"
apt-get -qq download prometheus 2> /dev/null || { apt-get -qq update && apt-get -qq download prometheus; }
dpkg -x prometheus_*.deb .
rm prometheus_*.deb
usr/bin/promtool --version | head -1
