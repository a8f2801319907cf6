# Sourced by the scripts of proofs. record_run PROOF ARGUMENTS COUNT RESULT SECONDS appends a row to docs/proofs/runs.csv.
#
# Columns: date, commit ("+" where the tree had other changes), hash of the trees of the tested crates at that commit, proof,
# arguments, count, result, seconds. RECORD=0 appends nothing.
record_run() {
    [ "${RECORD:-1}" = 1 ] || return 0
    local file=docs/proofs/runs.csv commit trees
    commit=$(git rev-parse --short=10 HEAD 2>/dev/null || echo unknown)
    git diff --quiet HEAD -- crates 2>/dev/null || commit+="+"
    trees=$(tested_trees)
    mkdir -p docs/proofs
    [ -s "$file" ] || echo "date,commit,tree_hash_of_tested_crates,proof,arguments,count,result,seconds" >"$file"
    echo "$(date -u +%FT%TZ),$commit,$trees,$1,$2,$3,$4,$5" >>"$file"
}

# tested_trees: the hash of the trees of the tested crates at HEAD.
tested_trees() {
    git ls-tree HEAD crates/base crates/storage crates/table crates/lsm crates/index crates/bolide crates/cli 2>/dev/null |
        git hash-object --stdin | cut -c1-10
}

# is_recorded PROOF ARGUMENTS: whether a run with these held for the tested crates as they are.
is_recorded() {
    [ "${RECORD:-1}" = 1 ] && [ -s docs/proofs/runs.csv ] && git diff --quiet HEAD -- crates 2>/dev/null || return 1
    grep -qE "^[^,]*,[^,+]*,$(tested_trees),$1,$2,[0-9]+,held," docs/proofs/runs.csv
}
