#!/usr/bin/env bash
# Cuts on real file systems, 50 at a time, in parts that are recorded and not repeated. See scripts/power-cuts.sh.
#
#   scripts/proofs/cuts.sh CUTS          each part of 50 cuts has its own seed, from 1 on
#
# Environment: BOLIDE, the program (default: built in release mode); ROWS and MAX_DELAY, as for scripts/power-cuts.sh;
# RECORD=0 records nothing and skips nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

if [ -z "${BOLIDE:-}" ]; then
    cargo build --release --quiet --bin bolide
    BOLIDE="${CARGO_TARGET_DIR:-target}/release/bolide"
fi
export BOLIDE
for ((part = 1; part <= ($1 + 49) / 50; part++)); do
    arguments="SEED=$part 50${ROWS:+ ROWS=$ROWS}${MAX_DELAY:+ MAX_DELAY=$MAX_DELAY}"
    if is_recorded power-cuts "$arguments"; then
        echo "power-cuts $arguments: recorded"
        continue
    fi
    started=$SECONDS
    if ! output=$(SEED=$part RECORD=0 scripts/power-cuts.sh 50 2>&1); then
        printf '%s\n' "$output" | tail -n 5
        record_run power-cuts "$arguments" 0 failed "$((SECONDS - started))"
        exit 1
    fi
    line=$(printf '%s\n' "$output" | tail -n 1)
    echo "$line"
    case $line in
        *skipped*) exit 0 ;;
    esac
    record_run power-cuts "$arguments" 50 held "$((SECONDS - started))"
done
