#!/usr/bin/env bash
# Runs a check of bolide-testkit over a range of seeds, in parts that are recorded and not repeated.
#
#   scripts/proofs/seeds.sh CHECK FIRST LAST STEP UNIT [OPTION...]
#
#   scripts/proofs/seeds.sh crashes 0 200 20 crashes      seeds 0..200, 20 at a time; counts "crashes"
#
# Each part appends a row to docs/proofs/runs.csv. A part with such a row for the same sources is skipped, so a run
# that was stopped goes on where it was. UNIT is the count of the check's last line that the row holds.
# Environment: TESTKIT, the program (default: built in release mode); RECORD=0 records nothing and skips nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

check=$1 first=$2 last=$3 step=$4 unit=$5
shift 5
need_program TESTKIT bolide-testkit
for ((from = first; from < last; from += step)); do
    to=$((from + step < last ? from + step : last))
    run_part "$check" "--seeds $from..$to${*:+ $*}" "$unit(,|\$)" "$TESTKIT" "$check" --seeds "$from..$to" "$@"
done
