#!/usr/bin/env bash
# Power cuts on real file systems in parts of 50; recorded parts are skipped. See scripts/power-cuts.sh.
#
#   scripts/proofs/cuts.sh CUTS          each part has its own seed, from 1 on
#
# Environment: BOLIDE, the program (default: built in release mode); ROWS and MAX_DELAY, as for scripts/power-cuts.sh;
# RECORD=0 disables recording and skipping.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

need_program BOLIDE bolide
export BOLIDE
for ((part = 1; part <= ($1 + 49) / 50; part++)); do
    arguments="SEED=$part 50${ROWS:+ ROWS=$ROWS}${MAX_DELAY:+ MAX_DELAY=$MAX_DELAY}"
    run_part power-cuts "$arguments" 'cuts in' env SEED="$part" RECORD=0 scripts/power-cuts.sh 50
done
