"""A tour of Bolide on real posts: import, queries, an index, Arrow, SQL, a plot.

    python examples/tour.py [DIRECTORY] [--rows N] [--plot FILE.png]

DIRECTORY has ``posts.ndjson.zst`` (decompressed by the program ``zstd``) or ``sample/posts.ndjson``; without it, the variable
``BOLIDE_DATA`` names it. The tour ends with a message where there are no data.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

import bolide


def posts(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Keys and records of the posts, as they are stored."""
    compressed = directory / "posts.ndjson.zst"
    if compressed.exists() and shutil.which("zstd"):
        process = subprocess.Popen(["zstd", "-dcq", str(compressed)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        lines = process.stdout
    else:
        lines = open(directory / "sample" / "posts.ndjson", "rb")
    with lines:
        for line in lines:
            yield json.loads(line)["id"], line.rstrip()


class Timer:
    """Prints a line with the time of a step."""

    def __init__(self, step: str) -> None:
        self.step = step

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        print(f"  {(time.perf_counter() - self.started) * 1000:9.1f} ms  {self.step}")


def tour(db: bolide.Db, directory: Path, rows: int, plot: Path | None) -> None:
    collection = db.create_collection("posts", indexes=["subreddit", "score:composite"])
    print("1. Import")
    with Timer("posts with two indexes"):
        count = collection.put_many(itertools.islice(posts(directory), rows))
    print(f"  {count} posts")

    print("2. Queries")
    with Timer("the subreddits and their posts"):
        subreddits = collection.distinct("subreddit")
    largest = max(subreddits, key=lambda pair: pair[1])[0]
    with Timer(f"the ten newest posts of {largest}"):
        answers = collection.find(subreddit=largest, limit=10)
    for answer in itertools.islice(answers, 3):
        print(f"    {answer.record['score']:6} {answer.record['title'][:70]}")
    with Timer("the highest scores"):
        best = collection.find("score >= 0", order="value-desc", limit=3, select=["score", "title"]).all()
    for answer in best:
        print(f"    {answer['score']:6} {answer['title'][:70]}")
    with Timer("a count over two attributes"):
        number = collection.count(bolide.eq("over_18", False) & (bolide.attribute("score") > 1000))
    print(f"    {number} posts above 1000")

    print("3. An index in the background")
    print("  advice:", collection.advise("domain").spec)
    build = collection.create_index("domain", background=True)
    while not build.wait(timeout=0.2):
        print(f"    {build.progress.share:.0%} of {build.progress.expected_records} records")
    with Timer("the ten newest posts of a domain"):
        explain = collection.find(domain="youtube.com", limit=10).explain
    print(f"    index {explain.index}, {explain.candidates} candidates")

    print("4. A transaction")
    key = best[0].key

    def vote(tx: bolide.Transaction) -> Any:
        post = tx.get(collection, key)
        tx.put(collection, key, {**post, "score": post["score"] + 1})
        return post["score"] + 1

    print(f"  {key} has score {db.transaction(vote)}")

    print("5. Arrow and SQL")
    columns = {"subreddit": "string", "score": "int64", "comments": "int64", "created_ms": "timestamp[ms]"}
    try:
        with Timer("GROUP BY over all posts in DuckDB"):
            statement = """
                select date_trunc('month', created_ms) as month, count(*) as posts, median(score) as score
                from posts group by month order by month
            """
            months = bolide.sql(db, statement, columns={"posts": columns}).fetchall()
    except ImportError as error:
        print(f"  skipped: {error}")
        return
    print(f"    {len(months)} months, the last: {months[-1][0]:%Y-%m} with {months[-1][1]} posts")

    print("6. A plot")
    draw(months, plot)


def draw(months: list[tuple[Any, int, float]], path: Path | None) -> None:
    """Draws posts and scores by month."""
    if path is None:
        print("  skipped: --plot FILE.png names the file")
        return
    try:
        import matplotlib
    except ImportError:
        print("  skipped: pip install matplotlib")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4))
    axes.bar([month for month, _, _ in months], [number for _, number, _ in months], width=25, color="#4c72b0")
    axes.set_ylabel("posts in a month")
    scores = axes.twinx()
    scores.plot([month for month, _, _ in months], [score for _, _, score in months], color="#c44e52")
    scores.set_ylabel("median score")
    axes.set_title("Posts in a Bolide collection, by month")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"  {path}")


def main() -> int:
    parser = argparse.ArgumentParser(description="A tour of Bolide on real posts.")
    parser.add_argument("directory", nargs="?", default=os.environ.get("BOLIDE_DATA"), type=Path)
    parser.add_argument("--rows", type=int, default=100_000, help="posts to import")
    parser.add_argument("--plot", type=Path, help="file for the plot")
    arguments = parser.parse_args()
    directory: Path | None = arguments.directory
    names = ("posts.ndjson.zst", "sample/posts.ndjson")
    if directory is None or not any((directory / name).exists() for name in names):
        print("no posts found: pass the directory of the data, or set BOLIDE_DATA; the tour is skipped")
        return 0
    with tempfile.TemporaryDirectory() as folder, bolide.open(Path(folder) / "db") as db:
        tour(db, directory, arguments.rows, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
