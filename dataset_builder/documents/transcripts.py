"""Transcripts of Claude Code (`~/.claude/projects/**/*.jsonl`) -> conversations in our message format.

A file holds a tree of messages: each rewind starts a branch, and the last one wins. Subagents' conversations
stand apart, and so does what follows a compaction, since the model no longer saw what was before it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import chat
from core.chat import Message
from core.errors import UserError
from core.progress import Progress
from dataset_builder.documents.transcript_lines import Entry, read_entries

NO_RESULT = "[no result]"


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One thread, from a user's text to an assistant's turn."""

    id: str
    source: str
    """The file, relative to the directory that it was found in."""
    messages: list[Message]
    sidechain: bool
    """Whether it is a subagent's: its user is the agent that delegated."""


def read_transcripts(directories: Iterable[Path]) -> tuple[list[Conversation], Counter[str]]:
    """Every conversation under `directories`, in order of path, and what was dropped, by reason.

    A broken line is a reason of its own, with file and line. UserError on a directory without transcripts.
    """
    counts: Counter[str] = Counter()
    found: dict[str, Conversation] = {}
    for directory in directories:
        files = sorted(directory.rglob("*.jsonl"))
        if not files:
            raise UserError(f"TRANSCRIPTS_DIRS: no .jsonl in {directory}; correct the path")
        progress = Progress("transcripts: files", len(files))
        for file in files:
            for root, conversation in _conversations(file, file.relative_to(directory).as_posix(), counts):
                other = found.get(root)
                if other:  # a resumed session repeats what it resumes
                    counts["copy of a resumed conversation"] += 1
                if other is None or len(other.messages) < len(conversation.messages):
                    found[root] = conversation
            progress.step()
        progress.close()
    return list(found.values()), +counts


def _conversations(path: Path, source: str, counts: Counter[str]) -> Iterator[tuple[str, Conversation]]:
    """The conversations of a file, each with the id of its first line."""
    entries: dict[str, Entry] = {}
    roots: dict[str, str] = {}
    threads: dict[str, list[Entry]] = defaultdict(list)
    results: dict[str, str] = {}
    for entry in read_entries(path, counts):
        parent = entries.get(entry.parent or "")
        if parent is None or parent.sidechain != entry.sidechain:
            entry.parent = None
        entries[entry.uuid] = entry
        roots[entry.uuid] = roots[entry.parent] if entry.parent else entry.uuid
        results |= entry.results
        if entry.role:
            threads[roots[entry.uuid]].append(entry)
    for number, (root, thread) in enumerate(threads.items()):
        chain: list[Entry] = []
        at: str | None = thread[-1].uuid
        while at:
            chain.append(entries[at])
            at = entries[at].parent
        messages = _messages(chain[::-1], thread, results, counts)
        if not messages:
            counts["thread without a request and an answer"] += 1
            continue
        sidechain = thread[-1].sidechain or "subagents" in path.parts
        name = source.removesuffix(".jsonl")
        yield (
            root,
            Conversation(
                id=f"{name}#{number}" if number else name,
                source=source,
                messages=messages,
                sidechain=sidechain,
            ),
        )


def _messages(
    chain: Sequence[Entry], thread: Sequence[Entry], results: dict[str, str], counts: Counter[str]
) -> list[Message]:
    """The messages of a chain of entries: whole API messages, each call followed by its result.

    The results of parallel calls hang on different lines of the tree, so they are looked up by call.
    """
    parts: dict[str, list[Entry]] = defaultdict(list)
    for entry in thread:
        parts[entry.message].append(entry)
    kept = {entry.message for entry in chain}
    dropped = [e for e in thread if e.message not in kept and (e.role == "assistant" or e.texts)]
    if dropped:
        counts["message on an abandoned branch"] += len({entry.message for entry in dropped})
    messages: list[Message] = []
    done: set[str] = set()
    after_command = False
    for entry in chain:
        if not entry.role or entry.message in done:
            continue
        done.add(entry.message)
        if entry.role == "assistant":
            messages += _turn(parts[entry.message], results, counts)
        elif entry.texts:
            if after_command and messages[-1]["role"] == "user":
                counts["slash command without an answer"] += 1
                messages.pop()
            messages.append(chat.user("\n\n".join(entry.texts)))
            after_command = entry.is_command
    return _tidy(messages, counts)


def _turn(parts: Sequence[Entry], results: dict[str, str], counts: Counter[str]) -> list[Message]:
    """An assistant's turn, put together from its lines, and the results of its calls in their order."""
    think = "\n\n".join(text for part in parts for text in part.thoughts)
    say = "\n\n".join(text for part in parts for text in part.texts)
    calls = [call for part in parts for call in part.calls]
    if not think and not say and not calls:
        return []
    turn = chat.say(say, think=think)
    if calls:
        functions = [{"name": name, "arguments": arguments} for _, name, arguments in calls]
        turn["tool_calls"] = [{"type": "function", "function": function} for function in functions]
    counts["call without a result"] += sum(number not in results for number, _, _ in calls)
    return [turn, *(chat.result(results.get(number, NO_RESULT)) for number, _, _ in calls)]


def _tidy(messages: Sequence[Message], counts: Counter[str]) -> list[Message]:
    """The messages from the first request to the last turn or its results, neighbours of one role joined."""
    tidy: list[Message] = []
    for message in messages:
        if not tidy and message["role"] != "user":
            counts["message before the first request"] += 1
        elif tidy and message["role"] == tidy[-1]["role"] != "tool":
            for key in ("reasoning_content", "content"):
                if key in message:
                    tidy[-1][key] = "\n\n".join(filter(None, (tidy[-1][key], message[key])))
            if "tool_calls" in message:
                tidy[-1]["tool_calls"] = message["tool_calls"]
        else:
            tidy.append(message)
    if tidy and tidy[-1]["role"] == "user":
        counts["request without an answer"] += 1
        tidy.pop()
    last = next((i for i in reversed(range(len(tidy))) if tidy[i]["role"] == "assistant"), -1)
    if any(message["content"] == NO_RESULT for message in tidy[last + 1 :]):
        del tidy[last + 1 :]
    return tidy if last >= 0 else []
