"""Subagents and plans: the examples, what Claude Code writes, and what a mistake is told."""

from pathlib import Path

import pytest

from core.errors import UserError
from dataset_builder.documents.agents import load_agent, load_agents
from dataset_builder.documents.plans import load_plan, load_plans
from tests.conftest import ROOT


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_the_examples_are_read() -> None:
    agents = load_agents([ROOT / "examples/agents"])
    assert [agent.name for agent in agents] == ["cronista-de-versiones", "revisor-de-diferencias"]
    assert agents[0].tools == ("mcp__git__git_log", "mcp__git__git_show")
    assert "SIEMPRE copia los identificadores" in agents[0].body
    plans = load_plans([ROOT / "examples/plans"])
    assert [plan.sections[0] for plan in plans] == ["## Resumen", "## Contexto"]
    assert all(section in plan.text for plan in plans for section in plan.sections)


@pytest.mark.parametrize(
    ("line", "tools"),
    [
        ("tools: Read, Bash(git add:*, git log:*)", ("Read", "Bash(git add:*, git log:*)")),
        ('tools: ["Read", "Grep"]', ("Read", "Grep")),
        ("tools:\n  - Read\n  - Grep", ("Read", "Grep")),
        ("tools: '*'", ()),
        ("tools:", ()),
        ("model: sonnet", ()),
    ],
)  # fmt: skip
def test_tools_are_a_line_or_a_list_and_none_means_all(
    tmp_path: Path, line: str, tools: tuple[str, ...]
) -> None:
    agent = load_agent(write(tmp_path / "a.md", f"---\nname: a\ndescription: D\n{line}\n---\nBody"))
    assert agent
    assert (agent.tools, agent.body) == (tools, "Body")


def test_a_description_that_claude_code_leaves_unquoted_is_read(tmp_path: Path) -> None:
    described = "Use this agent when: asked. Examples:\n\n<example>\nuser: 'x'\n</example>"
    head = f"name: a\ndescription: {described}\ntools: Read, Grep"
    agent = load_agent(write(tmp_path / "a.md", f"---\n{head}\n---\nBody"))
    assert agent
    assert agent.description == described
    assert agent.tools == ("Read", "Grep")


def test_agents_of_a_plugin_are_those_in_its_folders(tmp_path: Path) -> None:
    write(tmp_path / "README.md", "# Plugin")
    write(tmp_path / "commands/c.md", "---\ndescription: D\n---\n")
    write(tmp_path / "agents/README.md", "# Agents")
    write(tmp_path / "agents/x/b.md", "---\nname: b\ndescription: D\n---\n")
    write(tmp_path / "other/agents/a.md", "---\ndescription: D\n---\n")
    assert [agent.name for agent in load_agents([tmp_path])] == ["a", "b"]
    write(tmp_path / "other/agents/c.md", "---\nname: b\ndescription: D\n---\n")
    write(tmp_path / "skills/s/agents/SKILL.md", "---\nname: s\ndescription: D\n---\n")
    assert [agent.name for agent in load_agents([tmp_path])] == ["a", "b"]
    write(tmp_path / "other/agents/c.md", "---\nname: b\ndescription: E\n---\n")
    with pytest.raises(UserError, match=r"c\.md: b is also .*b\.md; rename one"):
        load_agents([tmp_path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("---\nname: a\n---\n", "description: expected a text, got None"),
        ("---\nname: a\ndescription: D\ntools: 5\n---\n", "tools: expected names, separated by commas"),
        ("---\nname: a\ndescription: D\n", "a.md:1: the front matter is never closed"),
        ("---\n: {\n---\n", "a.md:2: broken YAML"),
    ],
)
def test_a_broken_agent_says_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_agents([write(tmp_path / "a.md", content).parent])
    assert str(caught.value).startswith(str(tmp_path / "a.md"))
    assert message in str(caught.value)


def test_a_plan_without_a_title_has_its_file_s_name(tmp_path: Path) -> None:
    plan = load_plan(
        write(tmp_path / "idea.md", "---\na: b\n---\n### Uno\n#### x\n```\n### No\n```\n### Dos\n")
    )
    assert (plan.title, plan.sections) == ("idea", ("### Uno", "### Dos"))
    assert load_plan(write(tmp_path / "b.md", "Título\n===\n\nUno\n---\n")).sections == ("## Uno",)


@pytest.mark.parametrize(("load", "name"), [(load_agents, "AGENTS_DIRS"), (load_plans, "PLANS_DIRS")])
def test_a_folder_without_any_is_named(tmp_path: Path, load, name: str) -> None:
    assert load([]) == []
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=rf"{name}: no .* in {folder}; correct the path"):
            load([folder])
    write(tmp_path / "empty.md", "\n")
    with pytest.raises(UserError, match=name):
        load([tmp_path])
