"""The live tasks of the examples on real MCP servers: done rightly, wrongly, and only in words."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import anyio
import psutil
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from core import chat
from core.chat import Message, Tool
from core.yaml_files import read_yaml
from dataset_builder.drawing import values
from dataset_builder.talking.requests import expanded
from eval.agent import Ask
from eval.live import run
from eval.live.run import Score
from eval.live.tasks import Task
from eval.live.world import World, world
from tests import live_play
from tests.live_play import first_of_each, loaded, player, right_steps, wrong_value

ROOT = Path(__file__).parents[1]
TOOLS_SHOWN = 4


class Desk:
    """A world that sync tests can work in."""

    def __init__(self, portal: BlockingPortal, here: World) -> None:
        self.portal, self.world = portal, here

    def played(self, plays: Sequence[tuple[Task, Ask]]) -> list[Score]:
        """What each model's work is worth, all at work at once."""
        scores: dict[int, Score] = {}

        async def play(number: int, task: Task, ask: Ask) -> None:
            trace = await run.run(task, self.world, ask)
            scores[number] = await run.score(task, self.world, trace)

        async def all_at_once() -> None:
            async with anyio.create_task_group() as group:
                for number, (task, ask) in enumerate(plays):
                    group.start_soon(play, number, task, ask)

        self.portal.call(all_at_once)
        return [scores[number] for number in range(len(plays))]

    def git(self, task: Task, *words: str) -> str:
        """What git says in the task's repository."""
        place = self.world.directory / task.values["repo"]
        done = subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True)
        return done.stdout.strip()


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """The examples' servers, started once."""
    before = Path.cwd()
    os.chdir(ROOT)  # examples/mcp.json names its commands from there
    with start_blocking_portal() as portal:
        made = world(live_play.MCP_CONFIG, loaded(), TOOLS_SHOWN)
        with portal.wrap_async_context_manager(made) as here:
            os.chdir(before)
            yield Desk(portal, here)


def wrong(plays: Sequence[tuple[Task, Ask]], scores: Sequence[Score]) -> dict[str, str]:
    """The explanations of what is not right."""
    pairs = zip(plays, scores, strict=True)
    return {task.id: score.explanation for (task, _), score in pairs if not score.right}


def test_the_right_calls_do_every_task_of_the_examples(desk: Desk) -> None:
    plays = [(task, player(task, right_steps(task))) for task in loaded()]
    scores = desk.played(plays)
    assert wrong(plays, scores) == {}
    assert len({task.server for task in loaded()}) == 2
    assert len({task.skill for task in loaded()}) == 6
    for task, score in zip(loaded(), scores, strict=True):
        assert bool(score.findings) == bool(task.skill), task.id


def test_one_wrong_value_fails_every_task_and_the_reason_is_said(desk: Desk) -> None:
    plays = [(task, player(task, wrong_value(right_steps(task)))) for task in first_of_each()]
    found = wrong(plays, desk.played(plays))
    assert len(found) == len(plays)
    assert all(found.values())
    assert found["cambiar-de-rama-1"] == "rama actual: main"


def test_a_model_that_only_says_so_fails_every_task(desk: Desk) -> None:
    plays = [(task, player(task, [])) for task in first_of_each()]
    assert len(wrong(plays, desk.played(plays))) == len(plays)


def test_a_skill_whose_last_step_is_left_out_fails(desk: Desk) -> None:
    plays = [(task, player(task, right_steps(task)[:-1])) for task in first_of_each() if task.skill]
    assert len(plays) == 5
    assert len(wrong(plays, desk.played(plays))) == 5


def test_a_broken_rule_fails_a_task_whose_state_is_right(desk: Desk) -> None:
    task = next(task for task in loaded() if task.skill == "crear-rama")
    _, create, checkout = right_steps(task)
    score = desk.played([(task, player(task, [create, checkout]))])[0]
    assert desk.git(task, "branch", "--show-current") == task.values["rama"]
    assert not score.right
    broken = [one for one in score.findings if one["verdict"] == "broken"]
    assert [one["rule"] for one in broken] == ["pasos"]
    assert score.explanation == f"pasos: {broken[0]['reason']}"


def test_the_repository_itself_changes(desk: Desk) -> None:
    task = next(task for task in loaded() if task.id == "crear-rama-nueva-1")
    desk.played([(task, player(task, []))])
    assert task.values["rama"] not in desk.git(task, "branch")
    desk.played([(task, player(task, right_steps(task)))])
    assert task.values["rama"] in desk.git(task, "branch")


def test_a_task_shows_its_tools_among_others_of_its_server_the_same_ones_each_time(desk: Desk) -> None:
    shown = {}
    for task in loaded():
        tools = shown[task.id] = desk.world.tools(task)
        names = [tool["function"]["name"] for tool in tools]
        assert {f"mcp__{task.server}__{tool}" for tool in task.tools} <= set(names)
        assert all(name.startswith(f"mcp__{task.server}__") for name in names)
        assert len(set(names)) == len(names) == (2 if task.server == "time" else TOOLS_SHOWN)
        assert tools == desk.world.tools(task)
    assert len({str(tools) for tools in shown.values()}) > 10


def test_a_tool_that_is_not_shown_cannot_be_called(desk: Desk) -> None:
    task = next(task for task in loaded() if task.id == "cambiar-de-rama-1")
    shown = {tool["function"]["name"] for tool in desk.world.tools(task)}
    hidden = next(
        f"mcp__git__{tool['name']}"
        for tool in desk.world.links["git"].tools
        if f"mcp__git__{tool['name']}" not in shown
    )
    seen: list[str] = []

    async def ask(messages: list[Message], tools: list[Tool]) -> Message:
        if messages[-1]["role"] == "tool":
            seen.append(messages[-1]["content"])
            return chat.say("No puedo.", think="")
        return chat.call(hidden, {"repo_path": task.values["repo"]}, think="")

    desk.played([(task, ask)])
    assert seen == ["Error: tool not found"]


def test_a_model_that_calls_for_ever_is_stopped(desk: Desk) -> None:
    task = loaded()[0]
    status = ("git_create_branch", {"repo_path": task.values["repo"], "branch_name": "main"})

    async def turns() -> int:
        trace = await run.run(task, desk.world, player(task, [status] * 50), turns=3)
        assert all(message["content"].startswith("Error") for message in trace if message["role"] == "tool")
        return len(chat.assistant_turns(trace))

    assert desk.portal.call(turns) == 3


def test_neither_wordings_nor_values_are_those_of_training() -> None:
    entries = read_yaml(live_play.LIVE)
    told = {one.casefold() for one in _training_wordings()}
    for entry in entries:
        assert entry["request"].replace("«", "").replace("»", "").casefold() not in told
        for drawn in entry["each"]:
            for slot, value in drawn.items():
                assert values.side(value) == "eval", f"{entry['id']}: {slot} {value}"
    repos = [drawn["repo"] for entry in entries for drawn in entry["each"] if "repo" in drawn]
    assert len(set(repos)) == len(repos)


def _training_wordings() -> list[str]:
    requests = read_yaml(ROOT / "examples/requests.yaml")
    told = [one for server in requests.values() for tool in server.values() for one in tool["train"]]
    told += [one for skill in live_play.SKILLS for one in live_play.scenario(skill)["requests"]["train"]]
    return [text for wording in told for text in expanded(wording)]


INTERRUPTED = """
import anyio
from eval.live import agent_cmd
from eval.live.tasks import Task
from eval.live.world import world
from tests import live_play
async def stay(tasks, for_agent):
    async with world(live_play.MCP_CONFIG, tasks, 2, for_agent=for_agent) as here:
        print(here.directory, flush=True)
        if for_agent:
            task = Task(id="t", request="x", check="true")
            await agent_cmd.run(task, here, "sleep 300 & wait", endpoint="", model="")
        await anyio.sleep_forever()
"""


@pytest.mark.parametrize("at_work", ["live_play.loaded(), False", "[], True"], ids=["servers", "agent"])
def test_ctrl_c_leaves_no_process_and_no_scratch_directory(at_work: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"{INTERRUPTED}anyio.run(stay, {at_work})"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    with process.stdout:
        scratch = Path(process.stdout.readline().strip())
    assert scratch.is_dir()
    wait_for(lambda: len(_in(scratch)) >= 2)  # two servers, or the agent's shell and what it started
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    assert not scratch.parent.exists()
    wait_for(lambda: not _in(scratch))


def wait_for(what: Callable[[], bool]) -> None:
    """Fail where it is not so within half a minute."""
    limit = time.monotonic() + 30
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.05)


def _in(directory: Path) -> set[int]:
    """The processes that work in a directory, deleted or not."""
    return {process.pid for process in psutil.process_iter() if _place(process) == str(directory)}


def _place(process: psutil.Process) -> str:
    try:
        return process.cwd().removesuffix(" (deleted)")
    except (psutil.Error, OSError):
        return ""
