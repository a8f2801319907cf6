#!/usr/bin/env python3
"""Imports real data through the `bolide` program and compares its answers with SQLite's.

    scripts/compare_sqlite.py [--rows 100000] [--queries 200] [--kinds composite,lazy] [--spread ROUNDS]
                              [--sets posts,outage_ops] [--seed N] [--data DIR] [--keep]

The data sets `posts`, `vehicles` and `outage_ops` (a change stream) are read from DIR (default: shared/data beside
the repository); without them the script prints a message and exits with status 0. BOLIDE is the path of the program
(default: built in release mode). Both stores load the same rows; then some rows are put again and some are deleted. Then
random queries run: equality, range, up to three of them joined by AND, in all orders, with and without a limit and a limit
per value, as records, keys and counts, page by page, before and after a compaction. At a difference the script prints the
query and exits with status 1.

KINDS are kinds of index with their options (`eager:split=off`); `all` means every kind with every option. Each kind has a
database in which all indexes are of this kind; with several kinds, one more database has them in turn. With `--spread` the
kinds are spread over the attributes of as few databases as possible, in each round again, so that every kind is on ROUNDS
attributes. All databases run the same queries. The script skips a kind that the program does not support, with a message.
"""
import argparse
import atexit
import json
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

DATASETS = {
    "posts": {
        "key": "id",
        "indexes": ["subreddit", "domain", "score", "created_ms", "flair", "is_self"],
        "synchronous": ["score"],
        "short": ["created_ms"],
        "include": "comments",
        "indexed": ["subreddit", "domain", "score", "created_ms", "flair", "is_self", "comments"],
    },
    "vehicles": {
        "key": "id",
        "indexes": ["vehicle", "route", "speed", "headsign"],
        "synchronous": ["vehicle"],
        "short": [],
        "include": "lat",
        "indexed": ["vehicle", "route", "speed", "headsign", "lat"],
    },
    "outage_ops": {
        "key": "id",
        "op": "op",
        "indexes": ["region", "status", "customers", "etor_ms", "updated_ms"],
        "synchronous": ["status"],
        "short": ["updated_ms"],
        "include": "hazard",
        "indexed": ["region", "status", "customers", "etor_ms", "updated_ms", "hazard"],
    },
}


# Every kind with every option; PATH is an attribute that is not the sort key of the index.
ALL_KINDS = [
    "composite",
    "composite:maintenance=synchronous",
    "composite:validation=get-lite",
    "composite:validation=key-index",
    "composite:order=primary-key",
    "composite:order=primary-key,maintenance=synchronous",
    "composite:repair=primary-compaction",
    "composite:include=PATH",
    "composite:include=PATH,maintenance=synchronous",
    "lazy",
    "lazy:maintenance=synchronous",
    "lazy:validation=get-lite",
    "lazy:validation=key-index",
    "lazy:include=PATH",
    "eager",
    "eager:maintenance=synchronous",
    "eager:validation=get-lite",
    "eager:validation=key-index",
    "eager:include=PATH",
    "eager:split=off",
    "eager:split=off,maintenance=synchronous",
    "embedded",
    "embedded:bloom_bits=2",
]

# The usual maximum of answers without a limit, since the program prints and the script parses them.
MAX_ANSWERS = 5_000


def kind_of(value):
    """The type class of a value; equality and ranges are within one class."""
    if isinstance(value, bool):
        return "b"
    return "n" if isinstance(value, (int, float)) else "s" if isinstance(value, str) else "z"


class Difference(Exception):
    pass


def specifications(shape, kinds):
    """The indexes of a data set, with these kinds in turn, or with the kind of each attribute."""
    specs = []
    for number, attribute in enumerate(shape["indexes"]):
        if isinstance(kinds, dict):
            specs += [f"{attribute}:{kinds[attribute]}"] if attribute in kinds else []
            continue
        kind = kinds[number % len(kinds)]
        if attribute in shape["synchronous"] and kind in ("composite", "lazy", "eager"):
            kind += ":maintenance=synchronous"
        specs.append(f"{attribute}:{kind}")
    return [spec.replace("PATH", shape["include"]) for spec in specs]


def spread(shape, kinds, rounds):
    """Databases in which every kind is on `rounds` attributes in total, on different ones if possible."""
    pending = [kind for _ in range(rounds) for kind in kinds]
    used = {kind: [] for kind in kinds}
    databases = []
    while pending:
        database = {}
        # Every write rewrites the complete list of a value: only for attributes with few records per value.
        for attribute in sorted(shape["indexes"], key=lambda one: one not in shape["short"]):
            is_allowed = lambda kind: "split=off" not in kind or attribute in shape["short"]
            candidates = [kind for kind in pending if is_allowed(kind) and attribute not in used[kind]]
            # Kinds that only this attribute can have come first.
            candidates.sort(key=lambda kind: "split=off" not in kind)
            if candidates:
                database[attribute] = candidates[0]
                used[candidates[0]].append(attribute)
                pending.remove(candidates[0])
        if not database:
            break
        databases.append(database)
    return {f"spread{number}": database for number, database in enumerate(databases)}


class Comparison:
    def __init__(self, bolide, name, source, rows, seed, folder, databases):
        self.bolide, self.name, self.shape = bolide, name, DATASETS[name]
        self.rng = random.Random(f"{seed}/{name}")
        self.databases = {folder / name / word: kinds for word, kinds in databases.items()}
        self.query_count = 0
        self.compared = 0
        self.by_kind = {}
        self.lines = read_lines(source, rows)
        self.sqlite = sqlite3.connect(":memory:")
        columns = "".join(f", k_{a} TEXT, v_{a}" for a in self.shape["indexed"])
        self.sqlite.execute(f"CREATE TABLE r (key TEXT PRIMARY KEY, seq INTEGER{columns})")
        self.records = {}
        for attribute in self.shape["indexed"]:
            self.sqlite.execute(f"CREATE INDEX i_{attribute} ON r (v_{attribute}, seq)")
        self.sequence = 0
        self.imports = 0

    def run(self, *arguments, stdin=None):
        done = subprocess.run([self.bolide, *map(str, arguments)], input=stdin, capture_output=True, text=True)
        if done.returncode != 0:
            raise Difference(f"bolide {' '.join(map(str, arguments))}\nstatus {done.returncode}: {done.stderr}")
        return done.stdout

    def load(self, lines):
        """Loads the same lines into both stores, in order."""
        text = "".join(lines)
        for db, kinds in self.databases.items():
            options = [f"--index={spec}" for spec in specifications(self.shape, kinds)] if self.imports == 0 else []
            if "op" in self.shape:
                options += ["--op-field", self.shape["op"]]
            out = self.run("import", db, self.name, "-", "--key", self.shape["key"], *options, stdin=text)
            summary = json.loads(out)
            if summary["rows"] != len(lines) or summary["bad_rows"] != 0:
                raise Difference(f"{self.name}: {len(lines)} rows imported, the import reports {out}")
        self.imports += 1
        indexed = self.shape["indexed"]
        insert = f"INSERT OR REPLACE INTO r VALUES (?, ?{', ?, ?' * len(indexed)})"
        for line in lines:
            self.sequence += 1
            record = json.loads(line)
            key = json.dumps(record[self.shape["key"]])
            if "op" in self.shape and record[self.shape["op"]] in ("del", "delete"):
                self.forget(key)
                continue
            self.records[key] = line
            values = []
            for attribute in indexed:
                value = record.get(attribute)
                present = attribute in record
                values += [kind_of(value) if present else None, value]
            self.sqlite.execute(insert, (key, self.sequence, *values))
        self.sqlite.commit()

    def forget(self, key):
        self.sqlite.execute("DELETE FROM r WHERE key = ?", (key,))
        self.records.pop(key, None)

    def churn(self):
        """Puts some rows again, and deletes some."""
        self.load(self.rng.sample(self.lines, min(len(self.lines) // 20, 2000)))
        keys = [key for (key,) in self.sqlite.execute("SELECT key FROM r ORDER BY key")]
        for key in self.rng.sample(keys, min(len(keys) // 4, 25)):
            for db in self.databases:
                self.run("delete", db, self.name, key)
            self.forget(key)

    def any_value(self, attribute, classes):
        marks = ",".join("?" * len(classes))
        where = f"k_{attribute} IN ({marks})"
        (count,) = self.sqlite.execute(f"SELECT count(*) FROM r WHERE {where}", classes).fetchone()
        if count == 0:
            return None
        skip = self.rng.randrange(count)
        query = f"SELECT k_{attribute}, v_{attribute} FROM r WHERE {where} LIMIT 1 OFFSET {skip}"
        kind, value = self.sqlite.execute(query, classes).fetchone()
        return bool(value) if kind == "b" else value

    def predicate(self):
        """Command line options, SQL condition, SQL values and attribute; `None` without values."""
        attribute = self.rng.choice(self.shape["indexed"])
        if self.rng.random() < 0.5:
            classes = ["n", "s", "b", "z"]
            value = self.any_value(attribute, classes)
            options = ["--eq", f"{attribute}={json.dumps(value)}"]
            condition = f"k_{attribute} = ? AND v_{attribute} IS ?"
            return options, condition, [kind_of(value), value], attribute
        ends = [self.any_value(attribute, [c]) for c in self.rng.sample(["n", "s"], 2) for _ in range(2)]
        ends = sorted((e for e in (ends[:2] if ends[0] is not None else ends[2:]) if e is not None))
        if len(ends) < 2:
            return None
        low, high = ends
        shape = self.rng.random()
        low, high = (None, high) if shape < 0.15 else (low, None) if shape < 0.3 else (low, high)
        bound = low if low is not None else high
        text = lambda end: "" if end is None else json.dumps(end)
        condition, values = f"k_{attribute} = ?", [kind_of(bound)]
        if low is not None:
            condition, values = f"{condition} AND v_{attribute} >= ?", values + [low]
        if high is not None:
            condition, values = f"{condition} AND v_{attribute} <= ?", values + [high]
        return ["--range", f"{attribute}={text(low)}..{text(high)}"], condition, values, attribute

    def run_query(self):
        predicates = [p for p in (self.predicate() for _ in range(self.rng.choice([1, 1, 2, 2, 3]))) if p]
        if not predicates:
            return
        options = [option for p in predicates for option in p[0]]
        where = " AND ".join(p[1] for p in predicates)
        values = [value for p in predicates for value in p[2]]
        order = self.rng.choice(["newest", "newest", "oldest", "value", "value-desc"])
        limit = self.rng.choice([None, 1, 3, 10, 100])
        form = self.rng.choice(["records", "records", "keys", "count"])
        # Orders by value and limits per value use the first range; without one all values are equal.
        ranges = [p[3] for p in predicates if p[0][0] == "--range"]
        value = f"v_{ranges[0]}" if ranges else "NULL"
        recency = "seq" if order == "oldest" else "seq DESC"
        by = {"value": f"{value}, seq DESC", "value-desc": f"{value} DESC, seq DESC"}.get(order, recency)
        query = f"SELECT key, seq, {value} AS value FROM r WHERE {where}"
        if ranges and self.rng.random() < 0.3:
            each = self.rng.choice([1, 2, 5])
            options += ["--limit-per-value", str(each)]
            # All values of the window are of one type, so it orders them like the index.
            numbered = f"SELECT key, seq, {value} AS value, row_number() OVER (PARTITION BY {value} ORDER BY {recency}) AS n"
            query = f"SELECT key, seq, value FROM ({numbered} FROM r WHERE {where}) WHERE n <= {each}"
            by = by.replace(value, "value")
        if limit is None and form != "count" and self.rng.random() < 0.9:
            (count,) = self.sqlite.execute(f"SELECT count(*) FROM ({query})", values).fetchone()
            limit = MAX_ANSWERS if count > MAX_ANSWERS else None
        if limit is not None:
            options += ["--limit", str(limit)]
        query += f" ORDER BY {by} LIMIT {-1 if limit is None else limit}"
        expected = [key for key, _, _ in self.sqlite.execute(query, values)]
        options += ["--order", order]
        indexed = [p[3] for p in predicates if p[3] in self.shape["indexes"]]
        index = self.rng.choice(indexed) if indexed and self.rng.random() < 0.75 else None
        # An index on attribute A is named A.
        options += {"records": [], "keys": ["--keys-only"], "count": ["--count"]}[form]
        pages = limit in (3, 10, 100) and form != "count" and self.rng.random() < 0.2
        self.query_count += 1
        for db, kinds in self.databases.items():
            forced = index if not isinstance(kinds, dict) or index in kinds else None
            self.compare(db, options + (["--index", forced] if forced else []), form, expected)
            if pages:
                second = self.sqlite.execute(query.replace(f"LIMIT {limit}", f"LIMIT {limit} OFFSET {limit}"), values)
                self.compare_second_page(db, options, form, [key for key, _, _ in second])
            if forced:
                kind = kinds[forced] if isinstance(kinds, dict) else db.name
                self.by_kind[kind] = self.by_kind.get(kind, 0) + 1

    def compare_second_page(self, db, options, form, expected):
        """Compares the page after a cursor token."""
        first = self.run("find", db, self.name, *options, "--cursor", "start", "--format", "ndjson").split("\n")
        token = [json.loads(line).get("cursor") for line in first[-2:] if line]
        if not token or not token[-1]:
            if expected:
                raise Difference(f"bolide find {db} {self.name} {' '.join(options)}: no token, but more answers are expected")
            return
        self.compare(db, [*options, "--cursor", token[-1]], form, expected)

    def compare(self, db, options, form, expected):
        """Runs the query on one database, and compares the keys and records of its answers with the expected ones."""
        self.compared += 1
        out = self.run("find", db, self.name, *options, "--format", "ndjson")
        command = f"bolide find {db} {self.name} {' '.join(options)}"
        if form == "count":
            if json.loads(out) != {"count": len(expected)}:
                raise Difference(f"{command}\nSQLite counts {len(expected)}, bolide counts {out}")
            return
        answers = [json.loads(line) for line in out.split("\n") if line]
        answers = [answer for answer in answers if "cursor" not in answer]
        found = [json.dumps(answer["key"]) for answer in answers]
        if found != expected:
            place = next((i for i, pair in enumerate(zip(found, expected)) if pair[0] != pair[1]), len(expected))
            lists = f"SQLite: {expected[place:][:10]} ({len(expected)})\nbolide: {found[place:][:10]} ({len(found)})"
            raise Difference(f"{command}\nfrom answer {place} on\n{lists}")
        if form == "records":
            for answer, key in zip(answers, found):
                if answer["record"] != json.loads(self.records[key]):
                    raise Difference(f"{command}\nrecord of {key} differs: {answer['record']}")


def read_lines(source, rows):
    with subprocess.Popen(["zstd", "-dc", str(source)], stdout=subprocess.PIPE, text=True, encoding="utf-8") as decoder:
        lines = [line for _, line in zip(range(rows), decoder.stdout)]
        decoder.kill()
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each data set (0: all)")
    parser.add_argument("--queries", type=int, default=200, help="queries of each data set")
    parser.add_argument("--kinds", default="composite", help="kinds of index, separated by commas; all")
    parser.add_argument("--spread", type=int, default=0, help="spread the kinds over few databases, in this number of rounds")
    parser.add_argument("--sets", default=",".join(DATASETS), help="the data sets, separated by commas")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--data", type=pathlib.Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--keep", action="store_true", help="retain the databases")
    arguments = parser.parse_args()
    sources = {name: arguments.data / f"{name}.ndjson.zst" for name in arguments.sets.split(",")}
    missing = [str(path) for path in sources.values() if not path.exists()]
    if missing:
        print(f"skipped: {', '.join(missing)} not found")
        return 0
    try:
        subprocess.run(["zstd", "--version"], capture_output=True, check=True)
    except OSError:
        print("skipped: the program zstd is not installed")
        return 0
    bolide = os.environ.get("BOLIDE")
    if not bolide:
        subprocess.run(["cargo", "build", "--release", "--quiet", "--bin", "bolide"], cwd=ROOT, check=True)
        bolide = str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "bolide")
    print(f"seed {arguments.seed}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="bolide-sqlite-"))
    if arguments.keep:
        print(f"databases in {folder}")
    else:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    rows = arguments.rows or sys.maxsize
    kinds = ALL_KINDS if arguments.kinds == "all" else separate(arguments.kinds)
    kinds = available(bolide, folder, kinds)
    if not kinds:
        return 0
    for name, source in sources.items():
        databases = {kind.replace(":", "-"): [kind] for kind in kinds}
        if arguments.spread:
            databases = spread(DATASETS[name], kinds, arguments.spread)
        elif len(kinds) > 1:
            databases["mixed"] = kinds
        for word, spec in databases.items():
            print(f"{name}: {word}: {' '.join(specifications(DATASETS[name], spec))}", flush=True)
        one = Comparison(bolide, name, source, rows, arguments.seed, folder, databases)
        try:
            one.load(one.lines)
            one.churn()
            for number in range(arguments.queries):
                if number == arguments.queries // 3:
                    for db in one.databases:
                        one.run("compact", db)
                one.run_query()
            for db in one.databases:
                one.run("check", db, "--deep")
        except Difference as difference:
            print(f"DIFFERENT (seed {arguments.seed}, data set {name}): {difference}")
            return 1
        if not arguments.keep:
            shutil.rmtree(folder / name, ignore_errors=True)
        words = f"{one.query_count} queries to {', '.join(databases)}: {one.compared} answers, no difference"
        print(f"{name}: {len(one.lines)} rows, {words}", flush=True)
        if arguments.spread:
            print("  queries by index: " + ", ".join(f"{kind} {n}" for kind, n in sorted(one.by_kind.items())))
    return 0


def separate(text):
    """Splits a list of kinds; the options of a kind contain commas too."""
    kinds = []
    for part in text.split(","):
        if kinds and "=" in part and ":" not in part:
            kinds[-1] += f",{part}"
        else:
            kinds.append(part)
    return kinds


def available(bolide, folder, kinds):
    """The kinds that the program supports."""
    found = []
    for kind in kinds:
        spec = f"--index=a:{kind.replace('PATH', 'b')}"
        probe = [bolide, "import", folder / "probe", f"probe{len(found)}", "-", "--key", "id", spec]
        done = subprocess.run(probe, input='{"id":1}\n', capture_output=True, text=True)
        if "is not available in this version" in done.stderr:
            print(f"skipped: {done.stderr.strip()}")
        elif done.returncode != 0:
            sys.exit(f"index kind {kind}: {done.stderr.strip()}")
        else:
            found.append(kind)
    return found


if __name__ == "__main__":
    sys.exit(main())
