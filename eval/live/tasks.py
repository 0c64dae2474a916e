"""The tasks of LIVE, a YAML file: what is asked, and a script that tells whether it was done.

A list of tasks, each with

id       its name
server   a name in MCP_CONFIG, and `tools`: those of its tools that the task needs
skill    a skill of the held-out rows, to be followed as well; one of `server` and `skill` must be there
each     a list of `slot: value` mappings; the task is made once for each
setup    bash, run in the scratch directory before the task, perhaps more than once
request  what the user says; `{slot}` stands for a value
check    bash, run there afterwards: 0 = done; its last line of output says what is wrong

A script may be a list of parts, so that tasks can share some. To it the slots are variables: `"$slot"`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.chat import Row
from core.errors import UserError, did_you_mean
from core.mcp_config import read_config
from core.yaml_files import known, mapping, read_yaml, text

KEYS = ("id", "server", "tools", "skill", "each", "setup", "request", "check")
NEEDED = ("id", "request", "check")
FOLLOWED, PLAIN = ("skills", "adherence"), "followed"
"""Buckets of the rows that follow a skill, and the kind that does nothing else besides."""
SLOT = re.compile(r"\{([a-z_][a-z0-9_]*)\}")
NAME = re.compile(r"[a-z_][a-z0-9_]*")

ONE_QUERY = (
    "Con el servidor MCP «{server}»: haz una sola consulta de solo lectura, la más sencilla que te ofrezcan "
    "sus herramientas, y di qué has encontrado."
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task with its values in place."""

    id: str
    request: str
    server: str | None = None
    tools: tuple[str, ...] = ()
    """Those of the server's that it needs, by the server's own names."""
    row: Row | None = None
    """A held-out row of its skill: how the skill stands in a prompt, and where its rules are."""
    setup: str = ""
    check: str = ""
    """Blank where no state tells: then the server's answer or the skill's rules do."""
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def skill(self) -> str | None:
        """The skill that it is to follow."""
        return self.row.skill if self.row else None


def load(path: Path, mcp_config: Path, rows: Sequence[Row]) -> tuple[list[Task], list[str]]:
    """The tasks of a file, and a line for each that is left out: its server or its skill is not there.

    `rows` are the held-out rows of the dataset. UserError naming file and task on whatever is not as this
    module says.
    """
    entries = read_yaml(path)
    if not isinstance(entries, list) or not entries:
        raise UserError(f"{path}: expected a list of tasks, `- id: ...`; see examples/live.yaml")
    servers = [server.name for server in read_config(mcp_config)]
    skills = by_skill(rows)
    tasks: list[Task] = []
    skipped: list[str] = []
    for number, entry in enumerate(entries, 1):
        entry = _checked(entry, f"{path}: task {number}")
        server, skill = entry.get("server"), entry.get("skill")
        if server is not None and server not in servers:
            hint = did_you_mean(server, servers)
            skipped.append(f"{entry['id']}: skipped, {mcp_config} has no server {server}{hint}")
        elif skill is not None and skill not in skills:
            hint = did_you_mean(skill, skills)
            skipped.append(f"{entry['id']}: skipped, no held-out row follows a skill {skill}{hint}")
        else:
            tasks += _tasks(entry, skills.get(skill) if skill else None, f"{path}: task {entry['id']}")
    ids = [task.id for task in tasks]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice:
        raise UserError(f"{path}: task {twice} is there twice; rename one of them")
    return tasks, skipped


def for_agents(tasks: Sequence[Task], mcp_config: Path, rows: Sequence[Row]) -> list[Task]:
    """A task for each server of MCP_CONFIG and each skill of the held-out rows that no task names."""
    servers = {server.name for server in read_config(mcp_config)} - {task.server for task in tasks}
    skills = {name: row for name, row in by_skill(rows).items() if name not in {t.skill for t in tasks}}
    made = [
        Task(id=f"server {name}", server=name, request=ONE_QUERY.format(server=name))
        for name in sorted(servers)
    ]
    return made + [
        Task(id=f"skill {name}", row=row, request=request_of(row)) for name, row in sorted(skills.items())
    ]


def by_skill(rows: Sequence[Row]) -> dict[str, Row]:
    """A row that follows each skill: the plainest, and of those the first by its id."""
    found: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: (row.meta.get("kind", PLAIN) != PLAIN, row.id)):
        if row.skill and row.bucket in FOLLOWED:
            found.setdefault(row.skill, row)
    return found


def request_of(row: Row) -> str:
    """What the user says first in a row."""
    return next(message["content"] for message in row.messages if message["role"] == "user")


def _checked(entry: Any, where: str) -> dict[str, Any]:
    """One entry of the file with keys and types as they must be."""
    entry = dict(mapping(entry, where))
    where = f"{where} ({text(entry['id'], f'{where}: id')})" if "id" in entry else where
    known(entry, KEYS, where)
    for key in NEEDED:
        if key not in entry:
            raise UserError(f"{where}: {key} is missing; each task has {', '.join(NEEDED)}")
    if "server" not in entry and "skill" not in entry:
        raise UserError(f"{where}: neither server nor skill; name what the task is to try")
    if "tools" in entry and "server" not in entry:
        raise UserError(f"{where}: tools without the server that has them; add server")
    for key in ("tools", "each"):
        if not isinstance(entry.get(key, []), list):
            raise UserError(f"{where}: {key} must be a list, got {entry[key]!r}")
    for key in ("id", "server", "skill", "request"):
        if key in entry:
            entry[key] = text(entry[key], f"{where}: {key}")
    for key in ("setup", "check"):
        parts = entry.get(key, [])
        parts = parts if isinstance(parts, list) else [parts]
        entry[key] = "\n".join(text(part, f"{where}: {key}") for part in parts)
    return entry


def _tasks(entry: dict[str, Any], row: Row | None, where: str) -> list[Task]:
    made = []
    each = entry.get("each") or [None]
    for number, values in enumerate(each, 1):
        filled = {} if values is None else _values(values, f"{where}: each {number}")
        made.append(
            Task(
                id=entry["id"] if len(each) == 1 else f"{entry['id']}-{number}",
                request=_filled(entry["request"], filled, f"{where}: request"),
                server=entry.get("server"),
                tools=tuple(text(tool, f"{where}: tools") for tool in entry.get("tools", [])),
                row=row,
                setup=entry["setup"],
                check=entry["check"],
                values=filled,
            )
        )
    return made


def _values(value: Any, where: str) -> dict[str, str]:
    values = {name: text(one, f"{where}: {name}") for name, one in mapping(value, where).items()}
    for name in values:
        if not NAME.fullmatch(name):
            raise UserError(f"{where}: {name!r} is no variable of bash; use a-z, 0-9 and _")
    return values


def _filled(request: str, values: Mapping[str, str], where: str) -> str:
    for slot in SLOT.findall(request):
        if slot not in values:
            raise UserError(f"{where}: {{{slot}}} has no value in each{did_you_mean(slot, values)}")
    return SLOT.sub(lambda match: values[match[1]], request)
