"""Near-duplicates: rows of one bucket that ask for the same in nearly the same words.

Rows made from one template with other values are no duplicates of each other: only rows with the same calls
and the same values in the user's text are compared. Their likeness is the Jaccard index of the pairs of
neighbouring words and signs in what the user says; candidates come from MinHash
(https://ekzhu.com/datasketch/lsh.html), so that the time grows with the rows and not with their square.
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from core.chat import Row

THRESHOLD = 0.7
"""Least likeness of a duplicate. In four builds of the tiny profile no two comparable rows exceed 0.62."""
CANDIDATES = 0.5
"""Likeness from which MinHash proposes a pair: well below THRESHOLD, as its estimate scatters."""
PERMUTATIONS = 128
LEAST_WORDS = 5
"""Fewer of them, and no call, are mere talk (`Hola, buenos días`): how often it comes is a weight."""

_WORD = re.compile(r"\w+|[^\w\s]")
_VALUE = re.compile(r"""«[^»]*»|"[^"]*"|`[^`]*`|(?<!\w)'[^']*'(?!\w)|\S*\d\S*|\S+[/_.@#-]\S+""")


def near_duplicates(rows: Sequence[Row]) -> dict[str, str]:
    """Ids of the rows that repeat an earlier one, each with the id of that earlier row, which stays.

    Replay rows are exempt: somebody wrote their prompts, one like another on purpose.
    """
    alike: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.bucket == "replay":
            continue
        if _calls(row) or sum(len(re.findall(r"\w+", text)) for text in _asked(row)) >= LEAST_WORDS:
            alike[_key(row)].append(row)
    found: dict[str, str] = {}
    for group in alike.values():
        if len(group) > 1:
            found |= _repeated(group)
    return found


def likeness(one: Row, other: Row) -> float:
    """Jaccard index, from 0 to 1, of what two users say."""
    return _jaccard(_shingles(one), _shingles(other))


def _repeated(rows: list[Row]) -> dict[str, str]:
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=CANDIDATES, num_perm=PERMUTATIONS)
    shingles = [_shingles(row) for row in rows]
    found: dict[str, str] = {}
    for number, (row, own) in enumerate(zip(rows, shingles, strict=True)):
        signature = MinHash(num_perm=PERMUTATIONS)
        signature.update_batch([shingle.encode() for shingle in sorted(own)])
        candidates: list[Any] = index.query(signature)
        twins = [earlier for earlier in candidates if _jaccard(own, shingles[earlier]) >= THRESHOLD]
        if twins:
            found[row.id] = rows[min(twins)].id
        else:
            index.insert(number, signature)
    return found


def _key(row: Row) -> str:
    values = sorted(value for text in _asked(row) for value in _VALUE.findall(text))
    return json.dumps([row.bucket, row.skill, values, _calls(row)], ensure_ascii=False, sort_keys=True)


def _calls(row: Row) -> list[Any]:
    return [call["function"] for message in row.messages for call in message.get("tool_calls") or []]


def _asked(row: Row) -> list[str]:
    return [message["content"] for message in row.messages if message["role"] == "user"]


def _shingles(row: Row) -> set[str]:
    """Pairs of neighbouring words and signs, in lower case; a text of one word is that word."""
    found = set()
    for text in _asked(row):
        words = _WORD.findall(text.lower())
        found |= {" ".join(words[i : i + 2]) for i in range(max(1, len(words) - 1))}
    return found


def _jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, len(one | other))
