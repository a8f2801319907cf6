#!/usr/bin/env bash
# Runs a check of bolide-testkit over a range of seeds, in parts that are recorded and not repeated.
#
#   scripts/proofs/seeds.sh CHECK FIRST LAST STEP UNIT [OPTION...]
#
#   scripts/proofs/seeds.sh crashes 0 200 20 'power cuts'        seeds 0..200, 20 at a time; counts "power cuts"
#
# Each part appends a row to docs/proofs/runs.csv. A part with such a row for the same tested crates is skipped, so a run
# that was stopped goes on where it was. UNIT is the count of the check's last line that the row holds.
# Environment: TESTKIT, the program (default: built in release mode); RECORD=0 records nothing and skips nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

check=$1 first=$2 last=$3 step=$4 unit=$5
shift 5
if [ -z "${TESTKIT:-}" ]; then
    cargo build --release --quiet --bin bolide-testkit
    TESTKIT="${CARGO_TARGET_DIR:-target}/release/bolide-testkit"
fi
for ((from = first; from < last; from += step)); do
    to=$((from + step < last ? from + step : last))
    arguments="--seeds $from..$to${*:+ $*}"
    if is_recorded "$check" "$arguments"; then
        echo "$check $arguments: recorded"
        continue
    fi
    started=$SECONDS
    if ! output=$("$TESTKIT" "$check" --seeds "$from..$to" "$@" 2>&1); then
        printf '%s\n' "$output"
        record_run "$check" "$arguments" 0 failed "$((SECONDS - started))"
        exit 1
    fi
    line=$(printf '%s\n' "$output" | tail -n 1)
    printf '%s\n' "$line"
    count=$(printf '%s\n' "$line" | grep -oE "[0-9]+ $unit(,|\$)" | head -n 1 | grep -oE '^[0-9]+' || echo 0)
    record_run "$check" "$arguments" "$count" held "$((SECONDS - started))"
done
