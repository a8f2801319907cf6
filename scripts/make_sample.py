#!/usr/bin/env python3
"""Creates the bundled sample of `posts`: filters the lines of the full NDJSON on standard input.

    zstd -dc posts.ndjson.zst | scripts/make_sample.py | zstd -19 --ultra -o crates/cli/data/posts.ndjson.zst

The sample has every second post of 40 subreddits, in the order of the source. Posts marked `over_18` and posts with coarse
words are excluded, so that the demo is suitable for any audience.
"""
import json
import re
import sys

SUBREDDITS = """
algorithms androiddev arduino boardgames booksuggestions Breadit camping chemistry chess classicalmusic
cogsci commandline cpp Documentaries excel explainlikeimfive gardening geology gis hiking
HistoryofIdeas IndieGaming Jazz knitting languagelearning learnmath linguistics linux Maps math
mycology opensource photography PowerShell recipes running space tea vim woodworking
""".split()
COARSE = re.compile(r"fuck|shit|cunt|bitch|nigg|fag|rape|porn|slut|whore|penis|dick\b|pussy|tits|\bass\b|asshole|suicid|kill (my|your)self", re.I)

seen = dict.fromkeys(SUBREDDITS, 0)
for line in sys.stdin:
    post = json.loads(line)
    name = post["subreddit"]
    if name not in seen or post["over_18"] or COARSE.search(post["title"] + " " + post.get("selftext", "")):
        continue
    seen[name] += 1
    if seen[name] % 2:
        sys.stdout.write(line)
