"""Loading skills, scenarios and requests: what is let through, and what each mistake is told."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.errors import UserError
from dataset_builder.documents.skills import Skill, load_scenario, load_skill, load_skills
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking.requests import expanded, fill, load_requests, one_of, slots_in


def tool(name: str, **properties: str) -> ToolSchema:
    """A tool of the server `box` that requires all its arguments but `limit`."""
    return ToolSchema(
        server="box",
        name=name,
        description="",
        parameters={
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in properties.items()},
            "required": [key for key in properties if key != "limit"],
        },
        sha256="",
    )


TOOLS = {
    "box.open": tool("open", place="string", limit="integer"),
    "box.pack": tool("pack", place="string", files="array"),
}


def write_skill(folder: Path, name: str, head: str, body: str = "Do it.\n") -> Path:
    file = folder / name / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(f"---\n{head}\n---\n{body}", encoding="utf-8")
    return file


CLAUDE_CODE_S = """argument-hint: "[fichero]"
disable-model-invocation: true
user-invocable: false
allowed-tools: Bash(git add:*), Read
model: inherit
effort: high
context: fork
agent: Explore
paths: ["src/**"]
license: MIT
compatibility: claude-code
metadata: {version: "1"}
hooks: {PreToolUse: [{matcher: Bash}]}"""


def test_a_skill_is_read_with_the_keys_that_claude_code_adds(tmp_path: Path) -> None:
    head = f"name: open-box\ndescription: Opens.\n{CLAUDE_CODE_S}"
    file = write_skill(tmp_path, "open-box", head, "\n# Box\n\n---\n\nOpen it.\n")
    skill = load_skill(file)
    assert skill == Skill(
        name="open-box", description="Opens.", body="# Box\n\n---\n\nOpen it.", path=file, body_line=19
    )
    assert file.read_text(encoding="utf-8").split("\n")[skill.body_line - 1] == "# Box"


def test_line_ends_and_a_byte_order_mark_change_nothing(tmp_path: Path) -> None:
    file = write_skill(tmp_path, "box", "name: box\ndescription: Caña.", "\n# Box\n\n1. Abre.\n")
    plain, content = load_skill(file), file.read_bytes()
    for changed in (content.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + content):
        file.write_bytes(changed)
        assert load_skill(file) == plain


def test_bundled_files_are_those_of_its_folders_and_those_it_names(tmp_path: Path) -> None:
    body = "Read [the guide](guide.md), then run `tools/pack.py`.\n"
    file = write_skill(tmp_path, "box", "name: box\ndescription: D", body)
    for name in (
        "guide.md",
        "tools/pack.py",
        "scripts/a.sh",
        "references/deep/b.md",
        "notes.txt",
        "rules.yaml",
    ):
        (file.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (file.parent / name).write_text("x")
    found = [path.relative_to(file.parent).as_posix() for path in load_skill(file).references]
    assert found == ["guide.md", "references/deep/b.md", "scripts/a.sh", "tools/pack.py"]


def test_what_the_front_matter_does_not_say_is_taken_as_claude_code_takes_it(tmp_path: Path) -> None:
    said = load_skill(write_skill(tmp_path, "hook-use", "name: Hook Use\ndescription: D\nwhen_to_use: Late."))
    assert (said.name, said.description) == ("hook-use", "D Late.")
    assert said.deviations == ("name 'Hook Use' is not its directory's, 'hook-use'",)
    other = load_skill(write_skill(tmp_path, "bag", "name: box\ndescription: D"))
    assert (other.name, other.deviations) == ("box", ("name 'box' is not its directory's, 'bag'",))
    bare = write_skill(tmp_path, "bare", "")
    bare.write_text("# Bare\n\nDoes little.\nReally.\n\nMore.\n", encoding="utf-8")
    assert load_skill(bare).description == "Does little.\nReally."
    assert load_skill(bare).deviations == ("no front matter",)
    long = load_skill(write_skill(tmp_path, "long", f"name: long\ndescription: {'d' * 1025}"))
    assert long.deviations == ("description has 1025 characters, at most 1024",)


def test_skills_of_several_folders_are_sorted_by_name(tmp_path: Path) -> None:
    for folder, name in (("one", "b"), ("one", "c"), ("two", "a")):
        write_skill(tmp_path / folder, name, f"name: {name}\ndescription: D")
    skills = load_skills([tmp_path / "one", tmp_path / "two"])
    assert [skill.name for skill in skills] == ["a", "b", "c"]
    write_skill(tmp_path / "three", "b", "name: b\ndescription: D")
    assert [skill.name for skill in load_skills([tmp_path / "one", tmp_path / "three"])] == ["b", "c"]
    (tmp_path / "three/b/SKILL.md").write_text("---\nname: b\ndescription: E\n---\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"three/b/SKILL\.md: b is also .*one/b/SKILL\.md; rename"):
        load_skills([tmp_path / "one", tmp_path / "three"])
    with pytest.raises(UserError, match=r"no <skill>/SKILL\.md in .*four; correct the path"):
        load_skills([tmp_path / "four"])
    (tmp_path / "five/empty").mkdir(parents=True)
    with pytest.raises(UserError, match=r"no <skill>/SKILL\.md in .*five; correct the path"):
        load_skills([tmp_path / "five"])


def test_plugins_nest_their_skills_and_links_are_followed_once(tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    write_skill(plugins / "git/skills", "commit", "name: commit\ndescription: D")
    inner = write_skill(plugins / "time/.claude/skills", "meet", "name: meet\ndescription: D")
    write_skill(inner.parent / "assets", "template", "name: template\ndescription: D")
    write_skill(plugins / "git/node_modules/x", "dep", "name: dep\ndescription: D")
    shared = write_skill(tmp_path / "elsewhere", "shared", "name: shared\ndescription: D")
    (plugins / "shared").symlink_to(shared.parent)
    (plugins / "git/loop").symlink_to(plugins)
    assert [skill.name for skill in load_skills([plugins])] == ["commit", "meet", "shared"]
    assert [skill.name for skill in load_skills([shared.parent])] == ["shared"]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            "name: box\ndescription: Use when: asked",
            "SKILL.md:3: broken YAML (mapping values are not allowed",
        ),
        ("name: box\ndescription: D\nmade: 2026-13-01", "broken YAML (month must be in 1..12)"),
        ("name: box", "description is missing"),
        ("name: box\ndescription: ' '", "description is missing"),
        ("name: box\ndescription: [D]", "description is missing"),
        ("", "expected `name: value` lines, got None"),
        ("- name", "expected `name: value` lines, got ['name']"),
        ("name: [box\ndescription: D", "SKILL.md:3: broken YAML"),
    ],
)
def test_a_broken_skill_says_what_is_wrong(tmp_path: Path, head: str, message: str) -> None:
    file = write_skill(tmp_path, "box", head, "")
    with pytest.raises(UserError) as caught:
        load_skill(file)
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_skill_is_refused(tmp_path: Path) -> None:
    file = write_skill(tmp_path, "box", "name: box\ndescription: D")
    file.write_text("---\nname: box\n\n# Box\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"SKILL\.md:1: the front matter is never closed"):
        load_skill(file)
    file.write_bytes("---\nname: box\ndescription: caña\n---\n".encode("latin-1"))
    with pytest.raises(UserError, match="not UTF-8; save it"):
        load_skill(file)
    nameless = write_skill(tmp_path, "My Box", "name: Box\ndescription: D")
    with pytest.raises(UserError, match=r"name 'Box': expected 1 to 64 of a-z"):
        load_skill(nameless)


def scenario() -> dict[str, Any]:
    """A scenario that is right; tests break it."""
    return {
        "skill": "box",
        "values": {"place": "path", "what": "file", "key": "sha"},
        "requests": {
            "train": ["Pack {what} at {place}"],
            "dev": ["At {place}, pack {what}"],
            "eval": ["Please pack {what} at {place}"],
        },
        "steps": [
            {"think": "1", "call": "box.open", "args": {"place": "{place}"}, "result": "key {key}"},
            {
                "think": "2",
                "call": "box.pack",
                "args": {"place": "{place}", "files": ["{what}"]},
                "result": "ok",
            },
        ],
        "think": "3",
        "report": 'Packed "{what}" with "{key}".',
    }


def load(folder: Path, content: dict[str, Any]) -> Any:
    file = folder / "box" / "SKILL.md"
    file.parent.mkdir(exist_ok=True)
    text = yaml.safe_dump(content, allow_unicode=True)
    file.with_name("scenario.yaml").write_text(text, encoding="utf-8")
    return load_scenario(Skill(name="box", description="D", body="", path=file), TOOLS)


def test_a_scenario_is_read_with_its_templates(tmp_path: Path) -> None:
    read = load(tmp_path, scenario())
    assert [step.call for step in read.steps] == ["box.open", "box.pack"]
    assert read.requests["dev"] == ("At {place}, pack {what}",)
    assert fill(read.steps[1].args, {"place": "a/b", "what": "c.md"}) == {"place": "a/b", "files": ["c.md"]}
    skill = Skill(name="bag", description="D", body="", path=tmp_path / "bag" / "SKILL.md")
    assert load_scenario(skill, TOOLS) is None


def change(path: list[Any], value: Any) -> dict[str, Any]:
    """The right scenario with one value replaced."""
    content = scenario()
    part: Any = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["skil"], 1, "unknown key 'skil' (did you mean skill?)"),
        (["skill"], "bag", "skill 'bag' is not the skill beside it, 'box'"),
        (["values", "what"], "colour", "what has the unknown kind 'colour'; have path"),
        (["values"], {"place": "path", "what": "file"}, "{key} is used, but values does not declare it"),
        (["requests", "test"], ["x"], "unknown split 'test'; have train, dev, eval"),
        (["requests", "dev"], [], "dev must be a list of wordings"),
        (["requests", "dev"], ["pack {what} at {place}"], "stands in dev and in train; reword"),
        (["requests", "dev"], ["Pack at {place}"], "step 2 writes {what}, which neither 'Pack at {place}'"),
        (["steps"], [], "steps must be a list of calls"),
        (["steps", 0], {"think": "1"}, "step 1: call is missing"),
        (["steps", 0, "result"], "ok", "the report writes {key}, which neither"),
        (["steps", 0, "call"], "box.opne", "box.opne is not among the dumped tools (did you mean box.open?)"),
        (
            ["steps", 0, "args"],
            {},
            "args, mcp__box__open: 'place' is a required",
        ),
        (["steps", 0, "args", "lid"], "up", "refuses these args, mcp__box__open: "),
        (
            ["steps", 1, "args", "files"],
            "{what}",
            "step 2: box.pack refuses these args, mcp__box__pack.files",
        ),
        (["report"], 5, "report: expected a text, got 5"),
    ],
)
def test_a_broken_scenario_says_what_and_where(
    tmp_path: Path, path: list[Any], value: Any, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        load(tmp_path, change(path, value))
    assert str(caught.value).startswith(str(tmp_path / "box" / "scenario.yaml"))
    assert message in str(caught.value)


def test_a_slot_alone_keeps_its_type_and_elsewhere_becomes_text() -> None:
    values = {"n": 3, "name": "x"}
    template = {"n": "{n}", "list": ["{name}", 7], "text": '{"a": "{name}", "n": {n}}'}
    assert fill(template, values) == {"n": 3, "list": ["x", 7], "text": '{"a": "x", "n": 3}'}
    assert slots_in(template) == {"n", "name"}


def requests(folder: Path, **changes: Any) -> Path:
    """A file that asks for `box.open`, right but for `changes`."""
    entry = {
        "values": {"place": "path", "limit": "int"},
        "train": ["Open {place}", "Open {limit} of {place}"],
        "dev": ["Do open {place}"],
        "eval": ["Please open {place}"],
        "synonyms": ["Unlock {place}"],
    }
    file = folder / "requests.yaml"
    file.write_text(yaml.safe_dump({"box": {"open": entry | changes}}), encoding="utf-8")
    return file


def test_requests_are_read_by_tool_and_split(tmp_path: Path) -> None:
    (one,) = load_requests(requests(tmp_path), TOOLS)
    assert (one.server, one.tool, one.values) == ("box", "open", {"place": "path", "limit": "int"})
    assert one.wordings["train"] == ("Open {place}", "Open {limit} of {place}")
    assert list(one.wordings) == ["train", "dev", "eval", "synonyms"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": ["x"]}, "unknown split 'test'; have train, dev, eval, synonyms"),
        ({"eval": None}, "eval must be a list of wordings; add at least one"),
        ({"eval": ["open {place}"]}, "'open {place}' stands in box.open eval and in box.open train"),
        (
            {"dev": ["Open {box} {place}"]},
            "dev: 'Open {box} {place}' has {box}, which values does not declare",
        ),
        ({"dev": ["Open it"]}, "dev: 'Open it' lacks {place}, which the tool requires"),
        ({"dev": [3]}, "dev: expected a text, got 3"),
        ({"dev": ["Open it(| at {place})"]}, "dev: 'Open it' lacks {place}, which the tool requires"),
        (
            {"train": ["(Go|Now) {place}"], "dev": ["now {place}"]},
            "'now {place}' stands in box.open dev and in",
        ),
        (
            {"values": {"limit": "int"}},
            "no valid call, mcp__box__open: 'place' is a required",
        ),
        ({"values": {"place": "int"}}, "values make no valid call, mcp__box__open.place:"),
        ({"values": {"place": "path", "lid": "int"}}, "values make no valid call, mcp__box__open: "),
        ({"values": {"place": "colour"}}, "place has the unknown kind 'colour'; have path"),
        ({"values": None}, "values: expected `name: value` lines, got None"),
    ],
)
def test_broken_requests_name_file_server_and_tool(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = requests(tmp_path, **changes)
    with pytest.raises(UserError) as caught:
        load_requests(file, TOOLS)
    assert str(caught.value).startswith(str(file))
    assert "box.open" in str(caught.value)
    assert message in str(caught.value)


def test_requests_for_a_tool_that_no_server_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"box\.open: not among the dumped tools.* and make schemas"):
        load_requests(requests(tmp_path), {"box.pack": TOOLS["box.pack"]})
    with pytest.raises(UserError, match="no such file"):
        load_requests(tmp_path / "none.yaml", TOOLS)
    (tmp_path / "broken.yaml").write_text("box:\n  open: [\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"broken\.yaml:3: broken YAML"):
        load_requests(tmp_path / "broken.yaml", TOOLS)


def test_each_draw_of_a_wording_is_one_of_the_texts_that_it_stands_for() -> None:
    wording = "(Open|Lift the lid of) {place}( now|, please|)"
    texts = expanded(wording)
    assert len(texts) == len(set(texts)) == 6
    assert "Lift the lid of {place}, please" in texts
    assert {one_of(wording, random.Random(seed)) for seed in range(200)} == set(texts)
    assert expanded("Open {place} (quickly)") == ["Open {place} (quickly)"]
