#!/usr/bin/env bash
# Runs a check of bolide-testkit over a range of seeds, in parts; recorded parts are skipped.
#
#   scripts/proofs/seeds.sh CHECK FIRST LAST STEP UNIT [OPTION...]
#
#   scripts/proofs/seeds.sh crashes 0 200 20 crashes      seeds 0..200, 20 at a time; counts "crashes"
#
# Each part appends a row to docs/proofs/runs.csv. A part with a row for the same sources is skipped, so an interrupted run
# resumes. UNIT names the count in the check's last line that the row contains.
# Environment: TESTKIT, the program (default: built in release mode); RECORD=0 disables recording and
# skipping.
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
