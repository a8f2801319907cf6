#!/usr/bin/env bash
# Runs each fuzz target for a number of seconds; recorded targets are skipped.
#
#   scripts/proofs/fuzz.sh SECONDS [TARGET...]      default: all targets
#
# Environment: RECORD=0 disables recording and skipping.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

seconds=$1
shift
[ $# -gt 0 ] || set -- $(basename -s .rs fuzz/fuzz_targets/*.rs)
export RUSTC_BOOTSTRAP=1
cargo fuzz --version >/dev/null 2>&1 || { echo "fuzz: skipped: cargo-fuzz is not installed"; exit 0; }
for target in "$@"; do
    # libFuzzer's last line: "Done 12345 runs in 60 second(s)".
    run_part fuzz "$target $seconds" 'runs in' cargo fuzz run "$target" -- "-max_total_time=$seconds" -rss_limit_mb=4096
done
