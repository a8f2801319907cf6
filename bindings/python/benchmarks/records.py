"""The records of the comparison: posts of about 300 bytes with 11 fields, from a seed."""

import json
import random
from typing import Any

WORDS = "the of store index key value record write read page block tree level run query scan batch merge log".split()
FIELDS = {
    "id": "int64", "author": "string", "subreddit": "string", "title": "string", "body": "string", "score": "int64",
    "created_ms": "timestamp[ms]", "ratio": "float64", "comments": "int64", "edited": "bool", "tags": "list<string>",
}  # fmt: skip
THREE = ("subreddit", "score", "created_ms")


def key_of(number: int) -> str:
    return f"post-{number:09}"


class Posts:
    """``count`` posts; each of ``authors`` authors has about as many as another one."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.authors = count, max(1, count // 100)
        source = random.Random(seed)
        self.records = [self._make(number, source) for number in range(count)]
        self.texts = [json.dumps(record, separators=(",", ":")).encode() for record in self.records]
        self.bytes = sum(map(len, self.texts))

    def _make(self, number: int, source: random.Random) -> dict[str, Any]:
        words = source.choices(WORDS, k=20)
        return {
            "id": number, "author": f"author-{source.randrange(self.authors)}", "subreddit": source.choice(WORDS),
            "title": " ".join(words[:6]), "body": " ".join(words[6:]), "score": source.randrange(-10, 5_000),
            "created_ms": 1_700_000_000_000 + number * 1_000, "ratio": round(source.random(), 3),
            "comments": source.randrange(300), "edited": source.random() < 0.1, "tags": words[:2],
        }  # fmt: skip

    def pairs(self) -> list[tuple[str, bytes]]:
        return [(key_of(number), text) for number, text in enumerate(self.texts)]
