#!/usr/bin/env bash
# The operator's page in a real browser. Needs node, the debug binaries (cargo test
# makes them), Debian's chromium and playwright-core; the last two are asked for only
# when missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if ! command -v chromium > /dev/null; then
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core > /dev/null
fi
if [ ! -d node_modules/playwright-core ]; then
  npm ci --no-audit --no-fund --silent
fi
case ${SCREENSHOTS:-} in
  "" | /*) ;;
  *) SCREENSHOTS=$OLDPWD/$SCREENSHOTS && export SCREENSHOTS ;;
esac
node --test --test-concurrency=1 dashboard.test.mjs
