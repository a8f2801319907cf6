#!/usr/bin/env bash
# Kills `bolide import` with SIGKILL at random times and checks the remaining database.
#
#   scripts/kill-loop.sh [ROUNDS]        default: 50 rounds, about two minutes
#
# Environment: BOLIDE, the program (default: built in release mode); SEED, of the kill times; ROWS, the number of rows.
#
# Each round continues the import of the killed one. After each kill:
#   - every acknowledged row is present, and the rows are an exact prefix of the input, without gaps, partial batches or changed
#     bytes;
#   - `check --deep` finds no damaged file and no index that differs from its collection.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${1:-50}
seed=${SEED:-$RANDOM}
total=${ROWS:-400000}
if [ -z "${BOLIDE:-}" ]; then
    cargo build --release --quiet --bin bolide
    BOLIDE="${CARGO_TARGET_DIR:-target}/release/bolide"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/bolide-kill.XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAILED in round $round (SEED=$seed, rounds=$rounds): $*"
    trap - EXIT
    echo "files for inspection: $work"
    exit 1
}

echo "seed $seed, $rounds rounds, $total rows, $BOLIDE"
awk -v total="$total" 'BEGIN {
    for (id = 0; id < total; id++) {
        spread = (id * 2654435761) % 4294967296
        printf "{\"id\":%d,\"group\":\"g%d\",\"score\":%d,\"text\":\"row %d %s\"}\n",
            id, spread % 97, spread % 10007, id, substr("the quick brown fox jumps over the lazy dog", spread % 40)
    }
}' >"$work/rows.ndjson"

RANDOM=$seed
modes=(none batch always)
present=0 kills=0 finished=0
for ((round = 1; round <= rounds; round++)); do
    mode=${modes[round % 3]}
    delay=$((RANDOM % 900 + 5))
    "$BOLIDE" import "$work/db" rows - --key id --index group --index score:composite:maintenance=synchronous \
        --sync "$mode" --acknowledge < <(tail -n "+$((present + 1))" "$work/rows.ndjson") >"$work/out" 2>"$work/err" &
    pid=$!
    (sleep "0.$(printf '%03d' "$delay")"; kill -9 "$pid" 2>/dev/null) &
    killer=$!
    status=0
    wait "$pid" 2>/dev/null || status=$?
    kill "$killer" 2>/dev/null || true
    wait "$killer" 2>/dev/null || true
    case $status in
        137) kills=$((kills + 1)) ;;
        0) finished=$((finished + 1)) ;;
        *) fail "import ended with status $status: $(tail -n 3 "$work/err")" ;;
    esac

    # The last line may be incomplete.
    acknowledged=$(sed -n 's/^acknowledged \([0-9]*\) rows$/\1/p' "$work/err" | tail -n 1)
    acknowledged=$((present + ${acknowledged:-0}))
    if [ -e "$work/db/CURRENT" ]; then
        "$BOLIDE" check "$work/db" --deep >"$work/check" 2>&1 || fail "check --deep: $(tail -n 5 "$work/check")"
        # The collection may not exist yet.
        if ! "$BOLIDE" scan "$work/db" rows --format ndjson >"$work/scan" 2>"$work/err"; then
            grep -q 'no collection' "$work/err" || fail "scan: $(cat "$work/err")"
            : >"$work/scan"
        fi
    else
        : >"$work/scan"
    fi
    sed -E 's/^\{"key":[0-9]+,"sequence":[0-9]+,"record":(.*)\}$/\1/' "$work/scan" >"$work/found"
    present=$(wc -l <"$work/found")
    [ "$present" -ge "$acknowledged" ] || fail "$acknowledged rows were acknowledged, $present are present"
    head -n "$present" "$work/rows.ndjson" | cmp -s - "$work/found" || fail "the rows are not a prefix of the input"
    printf 'round %2d: sync %-6s killed after %3d ms, acknowledged %6d, present %6d\n' \
        "$round" "$mode" "$delay" "$acknowledged" "$present"
    if [ "$present" -eq "$total" ]; then
        rm -rf "$work/db"
        present=0
    fi
done
echo "$rounds rounds, $kills kills, $finished imports finished first: no acknowledged row was lost"
