# Functions of the proof scripts. Rows of docs/proofs/runs.csv: date, commit ("+" if tracked source files differ from it), hash of
# the tested sources at that commit, proof, arguments, count, result, seconds. RECORD=0 disables recording and skipping.

tested_crates=(crates/{base,memory,storage,table,lsm,index,bolide,cli}/src)

# without_tests: the lines of standard input whose path is not a test's.
without_tests() {
    grep -vE '(^|/)(tests|[a-z_]*_tests|test_[a-z_]*)(\.rs|/)' || true
}

# tested_trees: the hash of names and contents of the source files of the tested crates at HEAD, without tests and without their
# module declarations.
tested_trees() {
    local files
    files=$(git ls-tree -r HEAD "${tested_crates[@]}" 2>/dev/null | without_tests)
    {
        printf '%s\n' "$files" | cut -f 2
        printf '%s\n' "$files" | awk '{ print $3 }' | git cat-file --batch='%(objecttype)' |
            sed '/^#\[cfg(test)\]$/{N;/\nmod [a-z_]*;$/d}'
    } | git hash-object --stdin | cut -c1-10
}

# is_clean: whether these files equal those of HEAD.
is_clean() {
    local changed
    changed=$(git diff --name-only HEAD -- "${tested_crates[@]}" 2>/dev/null) || return 1
    [ -z "$(printf '%s' "$changed" | without_tests)" ]
}

# record_run PROOF ARGUMENTS COUNT RESULT SECONDS: appends a row.
record_run() {
    [ "${RECORD:-1}" = 1 ] || return 0
    local file=docs/proofs/runs.csv commit
    commit=$(git rev-parse --short=10 HEAD 2>/dev/null || echo unknown)
    is_clean || commit+="+"
    mkdir -p docs/proofs
    [ -s "$file" ] || echo "date,commit,tree_hash_of_tested_crates,proof,arguments,count,result,seconds" >"$file"
    echo "$(date -u +%FT%TZ),$commit,$(tested_trees),$1,$2,$3,$4,$5" >>"$file"
}

# is_recorded PROOF ARGUMENTS: whether a row has the same run of the same sources with the result held.
is_recorded() {
    [ "${RECORD:-1}" = 1 ] && [ -s docs/proofs/runs.csv ] && is_clean || return 1
    grep -qE "^[^,]*,[^,+]*,$(tested_trees),$1,$2,[0-9]+,held," docs/proofs/runs.csv
}

# run_part PROOF ARGUMENTS UNIT COMMAND...: runs COMMAND unless a row has the same run, prints the last line of its output (the
# last $printed_lines lines), and appends a row. The count of the row is the number before UNIT, a regular expression, in that line.
# A failing command, or a line without a count, ends the script. A line that starts with "PROOF: skipped" ends it with success and
# without a row.
run_part() {
    local proof=$1 arguments=$2 unit=$3 started=$SECONDS output line count
    shift 3
    if is_recorded "$proof" "$arguments"; then
        echo "$proof $arguments: recorded"
        return 0
    fi
    if ! output=$("$@" 2>&1); then
        printf '%s\n' "$output" | tail -n 100
        record_run "$proof" "$arguments" 0 failed "$((SECONDS - started))"
        exit 1
    fi
    printf '%s\n' "$output" | tail -n "${printed_lines:-1}"
    line=${output##*$'\n'}
    case $line in
        "$proof: skipped"*) exit 0 ;;
    esac
    count=$(printf '%s\n' "$line" | grep -oE "[0-9]+ $unit" | head -n 1 | grep -oE '^[0-9]+') || {
        echo "$proof $arguments: not recorded: the last line has no count before \"$unit\"" >&2
        exit 1
    }
    record_run "$proof" "$arguments" "$count" held "$((SECONDS - started))"
}

# need_program VARIABLE NAME: builds the program NAME in release mode, and sets VARIABLE to its path, unless that is set.
need_program() {
    [ -z "${!1:-}" ] || return 0
    cargo build --release --quiet --bin "$2"
    printf -v "$1" %s "${CARGO_TARGET_DIR:-target}/release/$2"
}
