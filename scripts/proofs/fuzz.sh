#!/usr/bin/env bash
# Runs every fuzz target for some time; targets that are recorded are not repeated.
#
#   scripts/proofs/fuzz.sh SECONDS [TARGET...]      default: all targets
#
# Environment: RECORD=0 records nothing and skips nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

seconds=$1
shift
[ $# -gt 0 ] || set -- $(basename -s .rs fuzz/fuzz_targets/*.rs)
export RUSTC_BOOTSTRAP=1
cargo fuzz --version >/dev/null 2>&1 || { echo "fuzz: skipped: cargo-fuzz is not installed"; exit 0; }
for target in "$@"; do
    arguments="$target $seconds"
    if is_recorded fuzz "$arguments"; then
        echo "fuzz $arguments: recorded"
        continue
    fi
    started=$SECONDS
    if ! output=$(cargo fuzz run "$target" -- "-max_total_time=$seconds" -rss_limit_mb=4096 2>&1); then
        printf '%s\n' "$output" | tail -n 30
        record_run fuzz "$arguments" 0 failed "$((SECONDS - started))"
        exit 1
    fi
    inputs=$(printf '%s\n' "$output" | grep -oE 'Done [0-9]+ runs' | grep -oE '[0-9]+' || echo 0)
    echo "$target: $inputs inputs"
    record_run fuzz "$arguments" "$inputs" held "$((SECONDS - started))"
done
