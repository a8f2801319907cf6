#!/usr/bin/env bash
# Runs both soaks of bolide-testkit, each for some time; one that is recorded is not repeated.
#
#   scripts/proofs/soak.sh SECONDS [DIRECTORY]      default: the directory of temporary files
#
# Environment: TESTKIT, the program (default: built in release mode); RECORD=0 records nothing and skips nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

seconds=$1
directory=${2:-${TMPDIR:-/tmp}}
if [ -z "${TESTKIT:-}" ]; then
    cargo build --release --quiet --bin bolide-testkit
    TESTKIT="${CARGO_TARGET_DIR:-target}/release/bolide-testkit"
fi
for soak in soak kinds-soak; do
    arguments="--seconds $seconds"
    if is_recorded "$soak" "$arguments"; then
        echo "$soak $arguments: recorded"
        continue
    fi
    started=$SECONDS
    if ! output=$("$TESTKIT" "$soak" --directory "$directory" --seconds "$seconds" 2>&1); then
        printf '%s\n' "$output"
        record_run "$soak" "$arguments" 0 failed "$((SECONDS - started))"
        exit 1
    fi
    printf '%s\n' "$output"
    puts=$(printf '%s\n' "$output" | tail -n 1 | grep -oE '[0-9]+ puts' | head -n 1 | grep -oE '^[0-9]+' || echo 0)
    record_run "$soak" "$arguments" "$puts" held "$((SECONDS - started))"
done
