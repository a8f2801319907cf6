#!/usr/bin/env python3
"""Imports real data through the `bolide` program and compares its answers with SQLite's.

    scripts/compare_sqlite.py [--rows 100000] [--questions 200] [--kinds composite,lazy] [--seed N] [--data DIR] [--keep]

The data sets `posts`, `vehicles` and `outage_ops` (a change stream) are read from DIR (default: shared/data beside
the repository); without them the script says so and ends with status 0. BOLIDE names the program (default: built in
release mode). Both stores get the same rows; then some rows are put once more and some are deleted; then random
questions are asked: equality, range, up to three of them joined by AND, in all orders, with and without a limit, as
records, keys and counts, before and after a compaction. Any difference ends the script with status 1 and prints the
question.

KINDS are kinds of index, each with at most one option (`eager:split=off`). Each gets a database of its own in which all
indexes are of it; with several, one more database has them in turn. All are asked the same questions. A kind that the
program does not have in this version is left out, and the script says so.
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
        "asked": ["subreddit", "domain", "score", "created_ms", "flair", "is_self", "comments"],
    },
    "vehicles": {
        "key": "id",
        "indexes": ["vehicle", "route", "speed", "headsign"],
        "synchronous": ["vehicle"],
        "asked": ["vehicle", "route", "speed", "headsign", "lat"],
    },
    "outage_ops": {
        "key": "id",
        "op": "op",
        "indexes": ["region", "status", "customers", "etor_ms"],
        "synchronous": ["status"],
        "asked": ["region", "status", "customers", "etor_ms", "hazard"],
    },
}


def kind_of(value):
    """The type class that equality and ranges stay within."""
    if isinstance(value, bool):
        return "b"
    return "n" if isinstance(value, (int, float)) else "s" if isinstance(value, str) else "z"


class Difference(Exception):
    pass


def specifications(shape, kinds):
    """The indexes of a data set, with these kinds in turn."""
    specs = []
    for number, attribute in enumerate(shape["indexes"]):
        kind = kinds[number % len(kinds)]
        if attribute in shape["synchronous"] and kind in ("composite", "lazy", "eager"):
            kind += ":maintenance=synchronous"
        specs.append(f"{attribute}:{kind}")
    return specs


class Comparison:
    def __init__(self, bolide, name, source, rows, seed, folder, databases):
        self.bolide, self.name, self.shape = bolide, name, DATASETS[name]
        self.rng = random.Random(f"{seed}/{name}")
        self.databases = {folder / name / word: kinds for word, kinds in databases.items()}
        self.lines = read_lines(source, rows)
        self.sqlite = sqlite3.connect(":memory:")
        columns = "".join(f", k_{a} TEXT, v_{a}" for a in self.shape["asked"])
        self.sqlite.execute(f"CREATE TABLE r (key TEXT PRIMARY KEY, seq INTEGER, record TEXT{columns})")
        for attribute in self.shape["asked"]:
            self.sqlite.execute(f"CREATE INDEX i_{attribute} ON r (v_{attribute}, seq)")
        self.sequence = 0
        self.imports = 0

    def run(self, *arguments, stdin=None):
        done = subprocess.run([self.bolide, *map(str, arguments)], input=stdin, capture_output=True, text=True)
        if done.returncode != 0:
            raise Difference(f"bolide {' '.join(map(str, arguments))}\nstatus {done.returncode}: {done.stderr}")
        return done.stdout

    def load(self, lines):
        """The same lines into both stores, in order."""
        text = "".join(lines)
        for db, kinds in self.databases.items():
            options = [f"--index={spec}" for spec in specifications(self.shape, kinds)] if self.imports == 0 else []
            if "op" in self.shape:
                options += ["--op-field", self.shape["op"]]
            out = self.run("import", db, self.name, "-", "--key", self.shape["key"], *options, stdin=text)
            summary = json.loads(out)
            if summary["rows"] != len(lines) or summary["bad_rows"] != 0:
                raise Difference(f"{self.name}: {len(lines)} rows given, import says {out}")
        self.imports += 1
        asked = self.shape["asked"]
        insert = f"INSERT OR REPLACE INTO r VALUES (?, ?, ?{', ?, ?' * len(asked)})"
        for line in lines:
            self.sequence += 1
            record = json.loads(line)
            key = json.dumps(record[self.shape["key"]])
            if "op" in self.shape and record[self.shape["op"]] in ("del", "delete"):
                self.sqlite.execute("DELETE FROM r WHERE key = ?", (key,))
                continue
            values = []
            for attribute in asked:
                value = record.get(attribute)
                present = attribute in record
                values += [kind_of(value) if present else None, value]
            self.sqlite.execute(insert, (key, self.sequence, line.rstrip("\n"), *values))
        self.sqlite.commit()

    def churn(self):
        """Some rows once more, some deleted."""
        self.load(self.rng.sample(self.lines, min(len(self.lines) // 20, 2000)))
        keys = [key for (key,) in self.sqlite.execute("SELECT key FROM r ORDER BY key")]
        for key in self.rng.sample(keys, min(len(keys) // 4, 25)):
            for db in self.databases:
                self.run("delete", db, self.name, key)
            self.sqlite.execute("DELETE FROM r WHERE key = ?", (key,))

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
        """Command line options, SQL condition, SQL values, attribute; or nothing where there is no value."""
        attribute = self.rng.choice(self.shape["asked"])
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
        given = low if low is not None else high
        text = lambda end: "" if end is None else json.dumps(end)
        condition, values = f"k_{attribute} = ?", [kind_of(given)]
        if low is not None:
            condition, values = f"{condition} AND v_{attribute} >= ?", values + [low]
        if high is not None:
            condition, values = f"{condition} AND v_{attribute} <= ?", values + [high]
        return ["--range", f"{attribute}={text(low)}..{text(high)}"], condition, values, attribute

    def question(self):
        predicates = [p for p in (self.predicate() for _ in range(self.rng.choice([1, 1, 2, 2, 3]))) if p]
        if not predicates:
            return
        options = [option for p in predicates for option in p[0]]
        where = " AND ".join(p[1] for p in predicates)
        values = [value for p in predicates for value in p[2]]
        order = self.rng.choice(["newest", "newest", "oldest", "value", "value-desc"])
        if len(predicates) > 1 and order.startswith("value"):
            order = "newest"
        limit = self.rng.choice([None, 1, 3, 10, 100])
        if limit is not None:
            options += ["--limit", str(limit)]
        attribute = predicates[0][3]
        by = {"newest": "seq DESC", "oldest": "seq", "value": f"v_{attribute}", "value-desc": f"v_{attribute} DESC"}
        query = f"SELECT key, record, v_{attribute} FROM r WHERE {where} ORDER BY {by[order]}"
        expected = self.sqlite.execute(query, values).fetchall()
        matching = {key: (record, value) for key, record, value in expected}
        if limit is not None:
            expected = expected[:limit]
        form = self.rng.choice(["records", "records", "keys", "count"])
        options += ["--order", order]
        indexed = [p[3] for p in predicates if p[3] in self.shape["indexes"]]
        if indexed and self.rng.random() < 0.4:
            options += ["--index", self.rng.choice(indexed)]
        options += {"records": [], "keys": ["--keys-only"], "count": ["--count"]}[form]
        for db in self.databases:
            self.compare(db, options, form, order, matching, expected)

    def compare(self, db, options, form, order, matching, expected):
        """Asks one database, and compares its answer with the expected rows."""
        out = self.run("find", db, self.name, *options, "--format", "ndjson")
        told = f"bolide find {db} {self.name} {' '.join(options)}"
        if form == "count":
            if json.loads(out) != {"count": len(expected)}:
                raise Difference(f"{told}\nSQLite counts {len(expected)}, bolide says {out}")
            return
        answers = [json.loads(line) for line in out.split("\n") if line]
        found = [json.dumps(answer["key"]) for answer in answers]
        if order.startswith("value"):
            # Equal values may come in any order: the values must agree, and every key must match.
            agree = len(set(found)) == len(found) == len(expected) and all(key in matching for key in found)
            agree = agree and [matching[key][1] for key in found] == [value for _, _, value in expected]
        else:
            agree = found == [key for key, _, _ in expected]
        if not agree:
            wanted = [key for key, _, _ in expected]
            raise Difference(f"{told}\nSQLite: {wanted[:20]} ({len(wanted)})\nbolide: {found[:20]} ({len(found)})")
        if form == "records":
            for answer, key in zip(answers, found):
                if answer["record"] != json.loads(matching[key][0]):
                    raise Difference(f"{told}\nrecord of {key} differs: {answer['record']}")


def read_lines(source, rows):
    with subprocess.Popen(["zstd", "-dc", str(source)], stdout=subprocess.PIPE, text=True, encoding="utf-8") as decoder:
        lines = [line for _, line in zip(range(rows), decoder.stdout)]
        decoder.kill()
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each data set (0: all)")
    parser.add_argument("--questions", type=int, default=200, help="questions to each data set")
    parser.add_argument("--kinds", default="composite", help="kinds of index, separated by commas")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--data", type=pathlib.Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--keep", action="store_true", help="leave the databases behind")
    arguments = parser.parse_args()
    sources = {name: arguments.data / f"{name}.ndjson.zst" for name in DATASETS}
    missing = [str(path) for path in sources.values() if not path.exists()]
    if missing:
        print(f"skipped: {', '.join(missing)} not there")
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
    kinds = available(bolide, folder, arguments.kinds.split(","))
    if not kinds:
        return 0
    databases = {kind.replace(":", "-"): [kind] for kind in kinds}
    if len(kinds) > 1:
        databases["mixed"] = kinds
    for name, source in sources.items():
        one = Comparison(bolide, name, source, rows, arguments.seed, folder, databases)
        try:
            one.load(one.lines)
            one.churn()
            for number in range(arguments.questions):
                if number == arguments.questions // 3:
                    for db in one.databases:
                        one.run("compact", db)
                one.question()
            for db in one.databases:
                one.run("check", db, "--deep")
        except Difference as difference:
            print(f"DIFFERENT (seed {arguments.seed}, data set {name}): {difference}")
            return 1
        if not arguments.keep:
            shutil.rmtree(folder / name, ignore_errors=True)
        words = ", ".join(databases)
        print(f"{name}: {len(one.lines)} rows, {arguments.questions} questions to {words}: no difference", flush=True)
    return 0


def available(bolide, folder, kinds):
    """Those of the kinds that the program has."""
    found = []
    for kind in kinds:
        probe = [bolide, "import", folder / "probe", f"probe{len(found)}", "-", "--key", "id", f"--index=a:{kind}"]
        done = subprocess.run(probe, input='{"id":1}\n', capture_output=True, text=True)
        if "is not available in this version" in done.stderr:
            print(f"left out: {done.stderr.strip()}")
        elif done.returncode != 0:
            sys.exit(f"index kind {kind}: {done.stderr.strip()}")
        else:
            found.append(kind)
    return found


if __name__ == "__main__":
    sys.exit(main())
