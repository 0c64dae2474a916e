"""A server's answers, kept as they come: what it was asked once, it is never asked again.

The file has one JSON line an answer. A process that is killed loses at most the line it was writing.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from core import endpoint
from core.endpoint import Answer, Endpoint, Question, Refusal


def ask(server: Endpoint, questions: Sequence[Question], store: Path, *, what: str) -> list[Answer | Refusal]:
    """The answers in the order of the questions, from the file `store` or else from the server.

    Refusals are not kept. Raises UserError as `endpoint.ask_all`; what was answered until then is kept.
    """
    keys = [_key(server.model, question) for question in questions]
    known = _read(store)
    missing = [i for i, key in enumerate(keys) if key not in known]
    if len(missing) < len(keys):
        print(f"{what}: {len(keys) - len(missing)} of {len(keys)} answers are kept from before")
    store.parent.mkdir(parents=True, exist_ok=True)
    with store.open("a", encoding="utf-8") as file:

        def take(number: int, answer: Answer | Refusal) -> None:
            key = keys[missing[number]]
            known[key] = answer
            if isinstance(answer, Answer):
                file.write(json.dumps({"key": key, **asdict(answer)}, ensure_ascii=False) + "\n")
                file.flush()

        if missing:
            endpoint.ask_all(server, [questions[i] for i in missing], take, what=what)
    return [known[key] for key in keys]


def _key(model: str, question: Question) -> str:
    asked = json.dumps([model, asdict(question)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(asked.encode()).hexdigest()


def _read(path: Path) -> dict[str, Answer | Refusal]:
    """What is kept; a half-written last line is cut from the file."""
    if not path.exists():
        return {}
    whole = path.read_bytes()
    lines = whole[: whole.rfind(b"\n") + 1]
    if len(lines) < len(whole):
        with path.open("r+b") as file:
            file.truncate(len(lines))
    kept = map(json.loads, lines.splitlines())
    return {one["key"]: Answer(one["message"], one["finish"]) for one in kept}
