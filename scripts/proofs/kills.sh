#!/usr/bin/env bash
# Kills imports in parts of 50; recorded parts are skipped.
#
#   scripts/proofs/kills.sh KILLS        each part has its own seed, from 1 on
#
# Environment: BOLIDE, the program (default: built in release mode); ROWS; RECORD=0 disables recording and
# skipping.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

need_program BOLIDE bolide
export BOLIDE
for ((part = 1; part <= ($1 + 49) / 50; part++)); do
    run_part kills "SEED=$part 50${ROWS:+ ROWS=$ROWS}" 'kills,' env SEED="$part" scripts/kill-loop.sh 50
done
