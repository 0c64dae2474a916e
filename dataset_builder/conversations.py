"""`make dataset` for a profile whose data are conversations: read, split, rendered, written.

DATA is the user's own file; a tenth of it is held out. The profile's own has its held-out file beside it.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, errors, render
from core.chat import Message, Row
from core.errors import UserError
from core.profile import Conversations
from core.render import IGNORE, RenderError
from core.settings import ConversationsSettings
from dataset_builder import raw
from dataset_builder.documents import conversation_lines
from dataset_builder.sanitizing.inputs import read_key
from dataset_builder.verifying import gate, page, split
from dataset_builder.verifying.checks import PASSED, Drop
from dataset_builder.verifying.figures import figures

BUCKET, GENERAL = "formal", "general"
FEWEST = 10
"""Conversations of the user's, of which the tenth that is held out is one."""


@dataclass(frozen=True)
class Files:
    """What the rows come from."""

    source: Path
    held_out: Path | None
    """None where a part of `source` is to be held out."""
    general: Path

    def inputs(self) -> dict[str, dict[str, str]]:
        """Their digests, by what they are."""
        named = {"conversations": self.source, "held-out": self.held_out, "general": self.general}
        return {
            what: {"path": str(file), "sha256": artifacts.file_sha256(file)}
            for what, file in named.items()
            if file
        }


def build(settings: ConversationsSettings, data: Conversations) -> int:
    """Build; exit code 0. UserError on a broken line or too few of them, Refused on a secret in a row."""
    path = settings.data_dir / "dataset"
    own = Path(settings.data).expanduser() if settings.data else None
    files = Files(own or data.source, None if own else data.held_out, data.general)
    base = settings.base_dir
    inputs = files.inputs() | {"base": artifacts.as_input(base, artifacts.require(base, "base"))}
    recorded = config.recorded(settings)
    if not artifacts.differences(artifacts.read_manifest(path), recorded, inputs):
        print(f"dataset: up to date ({path})")
        return errors.DONE

    from core.generate import load_tokenizer

    tokenizer = load_tokenizer(base)
    sides, repeated = read(files)
    known = raw.read_known_values(settings)
    key, allowed = read_key(settings.data_dir / raw.KEY), settings.secrets_allowed
    with artifacts.create(
        path,
        kind="dataset",
        profile=settings.profile.name,
        run=settings.run,
        settings=recorded,
        inputs=inputs,
    ) as draft:
        folded = no_system_prompt(tokenizer)
        dropped: list[Drop] = []
        for side, rows in sides.items():
            rows = [fold(row) for row in rows] if folded else rows
            sides[side], more = keep(gate.hidden(rows, key, known), tokenizer, settings.max_length)
            dropped += more
        train, held_out = split.shuffled(sides["train"], settings.data_seed), sides["eval"]
        if not (train and any(row.bucket == BUCKET for row in held_out)):
            raise UserError(f"{files.source}: no row is left on a side, {dropped[0].reason} the first reason")
        written = {"train.jsonl": train, "eval.jsonl": held_out}
        gate.refuse_secrets(written, tokenizer, Path(allowed) if allowed else None, known)
        for name, rows in written.items():
            chat.write_rows(draft.path / name, rows)
        draft.counts = figures(train, held_out, dropped, {})
        draft.counts |= {"repeated": repeated, "system_prompt_folded": folded, "transcripts_left_out": {}}
        shown = settings.data_dir / "dataset.html"
        content = page.render(settings.profile.name, draft.counts, train, held_out, dropped)
        artifacts.write_atomically(shown, content)
    _report(draft.counts, files, path)
    print(f"dataset: leaf through it in {shown}")
    return errors.DONE


def read(files: Files) -> tuple[dict[str, list[Row]], int]:
    """The rows by side, and how many conversations were there twice; UserError as the reader's."""
    rows, repeated = rows_of(files.source, BUCKET)
    if files.held_out:
        held_out, again = rows_of(files.held_out, BUCKET)
        repeated += again
        shared = split.leaks(rows, held_out)
        if shared:
            raise UserError(f"{files.held_out}: {shared[0]}; reword it there")
    else:
        rows, held_out = hold_out(rows, files.source)
    held_out = [replace(row, split="eval") for row in held_out]
    return {"train": rows, "eval": held_out + general(files.general)}, repeated


def general(file: Path) -> list[Row]:
    """Held-out rows by which to see how much of what the base knew is lost; UserError as the reader's.

    Their answers are given without thinking.
    """
    return [replace(row, split="eval", meta={"thinking": False}) for row in rows_of(file, GENERAL)[0]]


def rows_of(file: Path, bucket: str) -> tuple[list[Row], int]:
    """The rows of a file, each conversation once, and how many were there again."""
    rows: dict[str, Row] = {}
    found = conversation_lines.read(file)
    for line, messages in found:
        text = str([(message["role"], message["content"]) for message in messages])
        name = f"{bucket}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
        row = Row(
            id=name, bucket=bucket, group=name, split="train", messages=messages, tools=[],
            source=f"{file}:{line}",
        )  # fmt: skip
        rows.setdefault(name, row)
    return list(rows.values()), len(found) - len(rows)


def hold_out(rows: Sequence[Row], source: Path) -> tuple[list[Row], list[Row]]:
    """The rows to train on and the tenth held out, chosen by digest: none that asks what another asks.

    UserError where they are too few, or too much alike.
    """
    if len(rows) < FEWEST:
        raise UserError(f"{source}: {len(rows)} conversations; at least {FEWEST} are needed, one to hold out")
    asked = Counter(question for row in rows for question in set(_questions(row.messages)))
    alone = [row for row in rows if all(asked[question] == 1 for question in _questions(row.messages))]
    alone.sort(key=lambda row: hashlib.sha256(row.group.encode()).digest())
    chosen = {row.id for row in alone[: len(rows) // FEWEST]}
    if not chosen:
        raise UserError(f"{source}: every question stands there twice; add some that stand alone")
    train = [row for row in rows if row.id not in chosen]
    return train, [row for row in rows if row.id in chosen]


def no_system_prompt(tokenizer: Any) -> bool:
    """Whether the chat template refuses or drops a system message."""
    word = "sistema"
    try:
        return word not in render.prompt_text([*chat.system(word), chat.user("?")], [], tokenizer)
    except RenderError:
        return True


def fold(row: Row) -> Row:
    """The row with its system message put before the first question."""
    if row.messages[0]["role"] != "system":
        return row
    system, first, *others = row.messages
    return replace(row, messages=[chat.user(f"{system['content']}\n\n{first['content']}"), *others])


def keep(rows: Sequence[Row], tokenizer: Any, max_length: int) -> tuple[list[Row], list[Drop]]:
    """The rows that render truly within `max_length` tokens, with `tokens` in their `meta`; the others."""
    kept, dropped = [], []
    for row in rows:
        try:
            samples = render.render(row, tokenizer)
            tokens = [[len(s.labels), sum(label != IGNORE for label in s.labels)] for s in samples]
            if max(count for count, _ in tokens) > max_length:
                raise RenderError("over MAX_LENGTH")
        except RenderError as error:
            dropped.append(Drop(row.source, row.bucket, "render", str(error)))
        else:
            kept.append(replace(row, meta=row.meta | {"verdicts": {"render": PASSED}, "tokens": tokens}))
    return kept, dropped


def _questions(messages: Sequence[Message]) -> list[str]:
    return [one["content"] for one in messages if one["role"] == "user"]


def _report(counts: dict[str, Any], files: Files, path: Path) -> None:
    train, held_out = counts["train"].get(BUCKET, 0), counts["eval"].get(BUCKET, 0)
    print(f"dataset: {files.source}: {train} conversations to train on, {held_out} held out")
    if counts["repeated"]:
        print(f"dataset: {counts['repeated']} were there twice")
    if counts["system_prompt_folded"]:
        print("dataset: the chat template has no system prompt: those are put before the first question")
    for reason, count in counts["dropped"].items():
        print(f"dropped {count}: {reason}")
    print(f"dataset: {sum(counts['train'].values())} training rows at {path}")
