#!/usr/bin/env bash
# Imports rows on failing real file systems, and checks the remaining database.
#
#   scripts/power-cuts.sh [CUTS]         default: 27 cuts, one for each file system, failure and sync mode
#
# Environment: BOLIDE, the program (default: built in release mode); SEED, of the times; FROM, the first cut, to resume a run with
# its seed; ROWS, the number of rows; MAX_DELAY, the latest time in ms (default 1550); RECORD=0 appends no row to
# docs/proofs/runs.csv.
#
#   ext4, XFS   shutdown without a flush of the journal (FS_IOC_SHUTDOWN, as a power cut); a full disk; SIGKILL on a full disk
#   btrfs       a full disk; a full disk beside a snapshot of the database; SIGKILL on a full disk
#   each        with --sync none, batch, always
#
# The import may end with an error, never by a signal (except the SIGKILL of this script). On a full ext4 or XFS with 64 KiB free,
# the database then opens for writing and accepts ten deletes; a compaction, whose output needs space, succeeds or returns an
# error. After that, with space on the disk again:
#   - the database opens for writing and accepts rows;
#   - the rows are an exact prefix of the input, with every acknowledged row. After a shutdown this holds for --sync always; the
#     other modes may lose unsynced rows;
#   - `check --deep` finds no problem.
#
# Needs root and loop devices. It mounts only its own images in a new temporary directory, and removes them at its end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/proofs/record.sh

cuts=${1:-27}
seed=${SEED:-$RANDOM}
from=${FROM:-1}
total=${ROWS:-200000}
max_delay=${MAX_DELAY:-1550}
image_bytes=320M

skip() {
    echo "power-cuts: skipped: $*"
    exit 0
}
[ "$(id -u)" = 0 ] || skip "mounting needs root"
missing=()
command -v mkfs.ext4 >/dev/null || missing+=(e2fsprogs)
command -v mkfs.xfs >/dev/null || missing+=(xfsprogs)
command -v mkfs.btrfs >/dev/null || missing+=(btrfs-progs)
if [ ${#missing[@]} -gt 0 ]; then
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >/dev/null 2>&1 ||
        skip "cannot install ${missing[*]}"
fi
if [ -z "${BOLIDE:-}" ]; then
    cargo build --release --quiet --bin bolide
    BOLIDE="${CARGO_TARGET_DIR:-target}/release/bolide"
fi
BOLIDE=$(realpath "$BOLIDE")

work=$(mktemp -d "${TMPDIR:-/tmp}/bolide-cuts.XXXXXX")
importer=
clean_up() {
    [ -z "$importer" ] || kill -9 "$importer" 2>/dev/null || true
    local kind
    for kind in ext4 xfs btrfs; do
        unmount "$kind" || echo "still mounted: $work/$kind"
    done
    [ -n "${keep:-}" ] || rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'echo "power-cuts: line $LINENO failed" >&2' ERR

unmount() {
    local attempt
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        # mountpoint(1) fails on a file system that is shut down.
        grep -qF " $work/$1 " /proc/mounts || return 0
        umount "$work/$1" 2>/dev/null || sleep 0.2
    done
    return 1
}

make_file_system() { # KIND: an empty one, mounted at $work/KIND
    unmount "$1" || return 1
    rm -f "$work/$1.img"
    truncate -s "$image_bytes" "$work/$1.img"
    case $1 in
        ext4) mkfs.ext4 -q -m 0 "$work/$1.img" ;;
        xfs) mkfs.xfs -q "$work/$1.img" ;;
        btrfs) mkfs.btrfs -q "$work/$1.img" ;;
    esac >/dev/null 2>&1
    mkdir -p "$work/$1"
    mount -o loop "$work/$1.img" "$work/$1"
}
kinds=()
for kind in ext4 xfs btrfs; do
    if make_file_system "$kind" 2>/dev/null; then
        kinds+=("$kind")
        unmount "$kind"
    else
        echo "power-cuts: $kind cannot be mounted here, skipping it"
    fi
done
[ ${#kinds[@]} -gt 0 ] || skip "no loop mounts here"

fail() {
    echo "FAILED in cut $cut (SEED=$seed FROM=$cut scripts/power-cuts.sh $cuts): $*"
    record_run power-cuts "SEED=$seed FROM=$from $cuts" "$((cut - from))" "failed in cut $cut" "$SECONDS"
    keep=1
    cp -a "$work/$kind/." "$work/left" 2>/dev/null || true
    echo "files for inspection: $work/left, $work/import.err, $work/check"
    exit 1
}

# FS_IOC_SHUTDOWN with FSOP_GOING_FLAGS_NOLOGFLUSH: from here on the file system writes nothing. Prints how many rows were acknowledged just
# before. (A sync that runs at this moment may succeed on ext4, although what it wrote is lost: the conversion of its extents fails silently.)
shut_down() {
    python3 -c 'import fcntl, os, re, struct, sys
directory = os.open(sys.argv[1], os.O_RDONLY)
rows = re.findall(r"^acknowledged (\d+) rows$", open(sys.argv[2]).read(), re.M)
fcntl.ioctl(directory, 0x8004587d, struct.pack("I", 2))
print(rows[-1] if rows else 0)' "$1" "$work/import.err"
}

free_of() {
    df --output=avail -k "$1" | tail -n 1 | tr -d ' '
}

# leave_free DIR KIB: shrinks the filler until KIB of the file system at DIR are free.
leave_free() {
    local size step
    for ((step = 0; step < 400 && $(free_of "$1") < $2; step++)); do
        size=$(stat -c %s "$1/filler")
        [ "$size" -gt 0 ] || return 0
        truncate -s "$((size > 16384 ? size - 16384 : 0))" "$1/filler"
        sync -f "$1" || true
    done
}

# fill DIR KIB: fills the file system at DIR except for KIB.
fill() {
    local free
    free=$(df --output=avail -k "$1" | tail -n 1)
    [ "$free" -le "$2" ] || head -c "$((free - $2))K" /dev/zero >"$1/filler" 2>/dev/null || true
    sync -f "$1" || true
}

awk -v total="$total" 'BEGIN {
    for (id = 0; id < total; id++) {
        spread = (id * 2654435761) % 4294967296
        printf "{\"id\":%d,\"group\":\"g%d\",\"score\":%d,\"text\":\"row %d %s\"}\n",
            id, spread % 97, spread % 10007, id, substr("the quick brown fox jumps over the lazy dog", spread % 40)
    }
}' >"$work/rows.ndjson"


present_rows() { # DB: writes the rows to $work/found
    if ! "$BOLIDE" scan "$1" rows --format ndjson >"$work/scan" 2>"$work/err"; then
        grep -q 'no collection' "$work/err" || fail "scan: $(cat "$work/err")"
        : >"$work/scan"
    fi
    sed -E 's/^\{"key":[0-9]+,"sequence":[0-9]+,"record":(.*)\}$/\1/' "$work/scan" >"$work/found"
    present=$(wc -l <"$work/found")
    head -n "$present" "$work/rows.ndjson" | cmp -s - "$work/found" || fail "the rows are not a prefix of the input"
}

echo "seed $seed, cuts $from to $cuts, $total rows, ${kinds[*]}, $BOLIDE"
modes=(always none batch)
started=$SECONDS
for ((cut = from; cut <= cuts; cut++)); do
    RANDOM=$((seed + cut))
    position=$((cut - 1))
    kind=${kinds[position % ${#kinds[@]}]}
    position=$((position / ${#kinds[@]}))
    case $kind in
        btrfs) failures=(snapshot full kill) ;;
        *) failures=(shutdown full kill) ;;
    esac
    failure=${failures[position % 3]}
    mode=${modes[position / 3 % 3]}
    delay=$((RANDOM % (max_delay - 50) + 50))
    space=$((RANDOM % 12000 + 64))
    make_file_system "$kind" || fail "cannot mount $kind"
    top="$work/$kind"
    if [ "$kind" = btrfs ]; then
        btrfs -q subvolume create "$top/sub" >/dev/null
        db="$top/sub/db"
    else
        db="$top/db"
    fi
    case $failure in full | kill) fill "$top" "$space" ;; esac

    "$BOLIDE" import "$db" rows - --key id --index group --index score:composite:maintenance=synchronous \
        --sync "$mode" --acknowledge <"$work/rows.ndjson" >"$work/out" 2>"$work/import.err" &
    importer=$!
    sleep "$((delay / 1000)).$(printf '%03d' $((delay % 1000)))"
    killed=0
    case $failure in
        shutdown) guaranteed=$(shut_down "$top") || fail "cannot shut $kind down" ;;
        snapshot)
            btrfs -q subvolume snapshot "$top/sub" "$top/snapshot" >/dev/null
            fill "$top" 0
            ;;
        kill)
            kill -9 "$importer" 2>/dev/null || true
            killed=1
            ;;
    esac
    # An import that still has space is killed, too.
    for ((waited = 0; waited < 200; waited++)); do
        kill -0 "$importer" 2>/dev/null || break
        sleep 0.1
    done
    if kill -9 "$importer" 2>/dev/null; then
        [ "$failure" != shutdown ] || fail "the import continues after the shutdown"
        killed=1
    fi
    status=0
    wait "$importer" 2>/dev/null || status=$?
    importer=
    if [ "$status" -gt 128 ] && ! { [ "$status" = 137 ] && [ "$killed" = 1 ]; }; then
        fail "the import ended by signal $((status - 128)): $(tail -n 3 "$work/import.err")"
    fi
    acknowledged=$(sed -n 's/^acknowledged \([0-9]*\) rows$/\1/p' "$work/import.err" | tail -n 1)
    acknowledged=${acknowledged:-0}
    case $failure:$mode in
        shutdown:always) ;;
        shutdown:*) guaranteed=0 ;;
        *) guaranteed=$acknowledged ;;
    esac

    if [ "$failure" = shutdown ]; then
        unmount "$kind" || fail "cannot unmount $kind"
        mount -o loop "$work/$kind.img" "$top" || fail "cannot mount $kind again"
    fi
    deleted=0
    case $failure:$kind in
        full:ext4 | full:xfs | kill:ext4 | kill:xfs)
            if [ -s "$top/filler" ] && [ "$acknowledged" -gt 0 ]; then
                leave_free "$top" 64
                for key in 0 1 2 3 4 5 6 7 8 9; do
                    "$BOLIDE" delete "$db" rows "$key" >"$work/out" 2>"$work/err" ||
                        fail "delete of $key with $(free_of "$top") KiB free: $(tail -n 3 "$work/err")"
                done
                compacted=0
                "$BOLIDE" compact "$db" rows >"$work/out" 2>"$work/err" || compacted=$?
                [ "$compacted" = 0 ] || { [ "$compacted" = 1 ] && grep -q 'No space left' "$work/err"; } ||
                    fail "compact with $(free_of "$top") KiB free: status $compacted, $(tail -n 3 "$work/err")"
                deleted=1
            fi
            ;;
    esac
    rm -f "$top/filler"
    present=0
    if [ "$deleted" = 1 ]; then
        ! "$BOLIDE" get "$db" rows 0 >"$work/out" 2>&1 || fail "the deleted row is present"
        for key in 0 1 2 3 4 5 6 7 8 9; do
            "$BOLIDE" put "$db" rows "$key" "$(sed -n "$((key + 1))p" "$work/rows.ndjson")" >"$work/out" 2>"$work/err" ||
                fail "put: $(tail -n 3 "$work/err")"
        done
    fi
    if [ -e "$db/CURRENT" ]; then
        "$BOLIDE" check "$db" --deep >"$work/check" 2>&1 || fail "check --deep: $(tail -n 5 "$work/check")"
        present_rows "$db"
    fi
    [ "$present" -ge "$guaranteed" ] || fail "$guaranteed acknowledged rows are guaranteed, $present are present"
    survived=$present
    # The database opens for writing and accepts rows.
    sed -n "$((present + 1)),$((present + 500))p" "$work/rows.ndjson" >"$work/more.ndjson"
    "$BOLIDE" import "$db" rows "$work/more.ndjson" --key id --index group --index score:composite:maintenance=synchronous \
        --sync always >"$work/out" 2>"$work/import.err" || fail "import afterwards: $(tail -n 3 "$work/import.err")"
    present_rows "$db"
    [ "$present" -eq $((survived + $(wc -l <"$work/more.ndjson"))) ] || fail "$survived rows and 500 more became $present"
    "$BOLIDE" check "$db" --deep >"$work/check" 2>&1 || fail "check --deep afterwards: $(tail -n 5 "$work/check")"
    printf 'cut %3d: %-5s %-8s sync %-6s after %4d ms, status %3d, acknowledged %6d, present %6d\n' \
        "$cut" "$kind" "$failure" "$mode" "$delay" "$status" "$acknowledged" "$survived"
    unmount "$kind" || fail "cannot unmount $kind"
done
seconds=$((SECONDS - started))
record_run power-cuts "SEED=$seed FROM=$from $cuts" "$((cuts - from + 1))" held "$seconds"
echo "$((cuts - from + 1)) cuts in $seconds s: no signal, no guaranteed row was lost"
