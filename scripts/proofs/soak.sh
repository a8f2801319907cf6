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
need_program TESTKIT bolide-testkit
shown_lines=100 # With the peaks of each quarter.
for soak in soak kinds-soak; do
    run_part "$soak" "--seconds $seconds" 'puts(,|$)' "$TESTKIT" "$soak" --directory "$directory" --seconds "$seconds"
done
