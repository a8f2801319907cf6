#!/usr/bin/env bash
# Runs both soak tests of bolide-testkit, each for a number of seconds; recorded runs are skipped.
#
#   scripts/proofs/soak.sh SECONDS [DIRECTORY]      default: the directory of temporary files
#
# Environment: TESTKIT, the program (default: built in release mode); RECORD=0 disables recording and skipping.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/proofs/record.sh

seconds=$1
directory=${2:-${TMPDIR:-/tmp}}
need_program TESTKIT bolide-testkit
printed_lines=100 # With the peaks of each quarter.
for soak in soak kinds-soak; do
    run_part "$soak" "--seconds $seconds" 'puts(,|$)' "$TESTKIT" "$soak" --directory "$directory" --seconds "$seconds"
done
