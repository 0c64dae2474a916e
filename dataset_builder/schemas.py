"""Stage `schemas`: ask every MCP server of a Claude Code config for its tools; keep what the model sees.

The servers are asked again when the config changes, when one of them failed last time, and on REFRESH=1.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import artifacts, chat, config, errors, toolcalls
from core.chat import Tool
from core.errors import UserError
from core.mcp_config import Server, read_config
from core.mcp_tools import shown_name
from core.settings import SchemasSettings
from core.toolcalls import ToolCall
from dataset_builder.servers.mcp_client import Failure, ask_all
from dataset_builder.servers.schema_changes import changes

Answer = dict[str, Any]
"""What one server said: the content of its file."""


@dataclass(frozen=True, kw_only=True)
class ToolSchema:
    """One tool as the model sees it."""

    server: str
    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema of the arguments."""
    sha256: str
    """Of the tool's canonical JSON: tells a changed tool from the same one."""

    @property
    def properties(self) -> dict[str, Any]:
        """JSON schema by argument."""
        return self.parameters.get("properties", {})

    @property
    def required(self) -> tuple[str, ...]:
        """The arguments that every call must carry."""
        return tuple(self.parameters.get("required", ()))

    @property
    def shown_name(self) -> str:
        """The name under which Claude Code shows the tool: `mcp__git__git_status`."""
        return shown_name(self.server, self.name)

    @property
    def shown(self) -> Tool:
        """The tool as a prompt carries it."""
        return chat.tool(self.shown_name, self.description, self.parameters)

    def fault_in(self, arguments: dict[str, Any]) -> str | None:
        """The first thing that is wrong with the arguments of a call, or None."""
        found = toolcalls.faults(ToolCall(self.shown_name, arguments), [self.shown])
        return found[0] if found else None


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """One server as it presents itself."""

    name: str
    instructions: str
    """What it tells every client, or blank."""
    overview: str
    """The text of the guide that its instructions name, or blank; no prompt carries it."""
    protocol_version: str
    version: str
    """As it says itself; often its framework's."""


def load_tools(path: Path) -> dict[str, ToolSchema]:
    """The tools of a schemas artefact by `<server>.<tool>`; UserError where there is none."""
    return {
        f"{answer['server']}.{tool['name']}": ToolSchema(
            server=answer["server"],
            name=tool["name"],
            description=tool["description"],
            parameters=tool["inputSchema"],
            sha256=tool["sha256"],
        )
        for answer in _answers(path, artifacts.require(path, "schemas"))
        for tool in answer["tools"]
    }


def load_servers(path: Path) -> dict[str, ServerInfo]:
    """The servers of a schemas artefact by the config's name; UserError where there is none."""
    return {
        answer["server"]: ServerInfo(
            name=answer["server"],
            instructions=answer["instructions"] or "",
            overview=answer.get("overview") or "",
            protocol_version=answer["protocol_version"],
            version=(answer["server_info"] or {}).get("version", ""),
        )
        for answer in _answers(path, artifacts.require(path, "schemas"))
    }


def main(words: list[str]) -> int:
    """The stage; UserError once all are asked and the others' dumps are written, where a server failed."""
    settings = config.parse(SchemasSettings, words)
    path, source = settings.data_dir / "schemas", settings.mcp_config
    if not source.is_file():
        raise UserError(f"MCP_CONFIG={source}: no such file; give a Claude Code config with mcpServers")
    recorded = config.recorded(settings)
    inputs = {"config": {"path": str(source), "sha256": artifacts.file_sha256(source)}}
    manifest = artifacts.read_manifest(path)
    if manifest and not artifacts.complete(path, manifest):
        manifest = None
    same = not artifacts.differences(manifest, recorded, inputs)
    if same and manifest and not _failed(manifest["counts"]) and not settings.refresh:
        print(f"schemas: up to date ({path})")
        return errors.DONE
    servers = read_config(source)
    answers = ask_all(servers)
    last = {answer["server"]: answer for answer in _answers(path, manifest)} if manifest else {}
    dumps, counts = _kept(answers, last)
    _report(servers, answers, counts)
    differences = list(_differences(last, dumps))
    if last:
        print("\n".join(differences) or "no change since the last dump")
    if dumps and not (same and manifest and counts == manifest["counts"] and not differences):
        with artifacts.create(
            path,
            kind="schemas",
            profile=settings.profile.name,
            run=settings.run,
            settings=recorded,
            inputs=inputs,
        ) as draft:
            for name, answer in dumps.items():
                text = json.dumps(answer, indent=1, ensure_ascii=False) + "\n"
                (draft.path / f"{name}.json").write_text(text, encoding="utf-8")
            draft.counts = counts
    if dumps:
        print(f"schemas: {sum(len(dump['tools']) for dump in dumps.values())} tools in {path}")
    failed = _failed(counts)
    if failed:
        raise UserError(
            f"{source}: {len(failed)} of {len(servers)} servers failed ({', '.join(failed)}); mend them and "
            "make schemas, or delete them from the config to go on without their tools"
        )
    return errors.DONE


def _answers(path: Path, manifest: Mapping[str, Any]) -> Iterator[Answer]:
    for name in sorted(manifest["files"]):
        yield json.loads((path / name).read_text(encoding="utf-8"))


def _failed(counts: Mapping[str, Any]) -> list[str]:
    return [name for name, count in counts.items() if isinstance(count, dict)]


def _kept(
    answers: Mapping[str, Answer | Failure], last: Mapping[str, Answer]
) -> tuple[dict[str, Answer], dict[str, Any]]:
    """What is written by server, and the manifest's counts: the tools, marked where the server failed."""
    dumps: dict[str, Answer] = {}
    counts: dict[str, Any] = {}
    for name, answer in answers.items():
        dump = last.get(name) if isinstance(answer, Failure) else answer
        tools = len(dump["tools"]) if dump else 0
        if dump:
            dumps[name] = dump
        counts[name] = {"failed": True, "tools": tools} if isinstance(answer, Failure) else tools
    return dumps, counts


def _differences(last: Mapping[str, Answer], dumps: Mapping[str, Answer]) -> Iterator[str]:
    for name in (name for name in last if name not in dumps):
        yield f"{name}: gone from the config"
    for name, dump in dumps.items():
        if name in last:
            yield from (f"{name}: {line}" for line in changes(last[name], dump))
        else:
            yield f"{name}: new, {len(dump['tools'])} tools"


def _report(
    servers: Sequence[Server], answers: Mapping[str, Answer | Failure], counts: Mapping[str, Any]
) -> None:
    width = max(len("server"), *(len(server.name) for server in servers))
    print(f"{'server':<{width}}  tools  transport  protocol")
    for server in servers:
        answer, tools = answers[server.name], counts[server.name]
        if isinstance(answer, Failure):
            tools = tools["tools"]
            version = "failed; its last dump stays" if tools else "failed"
            print(f"{server.name}: {answer.reason}", file=sys.stderr)
        else:
            version = answer["protocol_version"]
        print(f"{server.name:<{width}}  {tools or '-':>5}  {server.transport:<9}  {version}")


if __name__ == "__main__":
    errors.run(main)
