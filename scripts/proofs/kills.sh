#!/usr/bin/env bash
# Kills imports, 50 at a time, in parts that are recorded and not repeated.
#
#   scripts/proofs/kills.sh KILLS        each part of 50 rounds has its own seed, from 1 on
#
# Environment: BOLIDE, the program (default: built in release mode); ROWS; RECORD=0 records nothing and skips nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

if [ -z "${BOLIDE:-}" ]; then
    cargo build --release --quiet --bin bolide
    BOLIDE="${CARGO_TARGET_DIR:-target}/release/bolide"
fi
export BOLIDE
for ((part = 1; part <= ($1 + 49) / 50; part++)); do
    arguments="SEED=$part 50${ROWS:+ ROWS=$ROWS}"
    if is_recorded kills "$arguments"; then
        echo "kills $arguments: recorded"
        continue
    fi
    started=$SECONDS
    if ! output=$(SEED=$part scripts/kill-loop.sh 50 2>&1); then
        printf '%s\n' "$output" | tail -n 5
        record_run kills "$arguments" 0 failed "$((SECONDS - started))"
        exit 1
    fi
    line=$(printf '%s\n' "$output" | tail -n 1)
    echo "$line"
    record_run kills "$arguments" "$(printf '%s\n' "$line" | grep -oE '[0-9]+ kills' | grep -oE '^[0-9]+')" held "$((SECONDS - started))"
done
