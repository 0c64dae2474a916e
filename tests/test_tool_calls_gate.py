"""The gate of tool calls: a due call is right only in every part, and every fault has its name."""

import pytest

from core import chat
from core.chat import Row
from eval.gates import tool_calls
from eval.gates.tool_calls import DEAD, INVALID, LOST, NEEDLESS, NO_CALL, NUMBER, VALUES, Score
from tests.asking import message_of

TOOL = chat.tool(
    "mcp__git__git_log",
    "Shows commits",
    {
        "properties": {"repo_path": {"type": "string"}, "max_count": {"type": "integer"}},
        "required": ["repo_path"],
        "type": "object",
    },
)
GOLD = chat.call("mcp__git__git_log", {"repo_path": "web/api", "max_count": 3}, think="Use it.")
CALL = "<tool_call>\n<function=mcp__git__git_log>\n{}</function>\n</tool_call>"
PATH = "<parameter=repo_path>\nweb/api\n</parameter>\n"
COUNT = "<parameter=max_count>\n3\n</parameter>\n"


def row(messages: list[chat.Message], train_turns: list[int] | None = None) -> Row:
    return Row(
        id="r", bucket="b", group="g", split="eval", messages=messages, tools=[TOOL], train_turns=train_turns
    )


def judged(example: Row, answer: str) -> Score:
    """The score of generated text, which our parser reads as the server's would."""
    return tool_calls.score(example, message_of(answer, example.tools))


@pytest.mark.parametrize(
    ("answer", "fault", "explanation"),
    [
        (CALL.format(PATH + COUNT), "", ""),
        (CALL.format(COUNT + PATH), "", ""),
        (CALL.format(PATH), VALUES, "wrong values"),
        (CALL.format(PATH + COUNT.replace("3", "4")), VALUES, "wrong values"),
        (CALL.format(PATH + COUNT.replace("3", "three")), INVALID, "'three' is not of type 'integer'"),
        (CALL.format(COUNT), INVALID, "'repo_path' is a required property"),
        (CALL.format(PATH + COUNT).replace("log", "show"), tool_calls.TOOL, "wrong tool: mcp__git__git_show"),
        (2 * CALL.format(PATH + COUNT), NUMBER, "2 calls where one is due"),
        ("Hecho.", NO_CALL, "text where a call is due"),
        ("", DEAD, "neither text nor call"),
        ('{"name": "mcp__git__git_log", "arguments": {}}', LOST, "markup where the parser sees none"),
        ("<tool_call>", DEAD, "neither text nor call"),
    ],
)
def test_a_due_call_is_right_only_in_every_part(answer, fault, explanation):
    score = judged(row([chat.user("x"), GOLD]), "Use it.\n</think>\n\n" + answer)
    assert (score.right, score.fault, score.due) == (fault == "", fault, True)
    assert explanation in score.explanation


@pytest.mark.parametrize("thought", ["<function=mcp__git__git_log>", '{"name" : "mcp__git__git_log"}'])
def test_a_call_that_stays_in_the_thinking_is_lost(thought):
    example = row([chat.user("x"), GOLD])
    assert judged(example, f"Now {thought}").fault == LOST
    assert judged(example, "I keep thinking of git_log").fault == DEAD
    assert judged(example, f"Now {thought}\n</think>\n\n" + CALL.format(PATH + COUNT)).right


def test_calls_of_one_turn_are_right_in_any_order_and_only_all_of_them():
    log = GOLD["tool_calls"][0]["function"]
    other = {"name": log["name"], "arguments": {**log["arguments"], "max_count": 7}}
    both = GOLD | {"tool_calls": [{"type": "function", "function": one} for one in (log, other)]}
    due = row([chat.user("x"), both])
    first, second = (CALL.format(PATH + COUNT.replace("3", n)) for n in ("3", "7"))
    assert judged(due, "t\n</think>\n\n" + first + second).right
    assert judged(due, "t\n</think>\n\n" + second + first).right
    assert "wrong values" in judged(due, "t\n</think>\n\n" + first + first).explanation
    assert "1 calls where 2 are due" in judged(due, "t\n</think>\n\n" + first).explanation


def test_where_no_call_is_due_text_is_right_a_call_and_silence_are_wrong():
    example = row([chat.user("gracias"), chat.say("De nada.", think="t")])
    assert judged(example, "t\n</think>\n\nNo hay de qué.").right
    for answer, fault in (("t\n</think>\n\n" + CALL.format(PATH), NEEDLESS), ("thinking and thinking", DEAD)):
        score = judged(example, answer)
        assert (score.right, score.fault, score.due) == (False, fault, False)


def test_the_model_sees_the_history_up_to_the_turn_to_judge():
    wrong = chat.call("mcp__git__git_log", {}, think="t")
    report = chat.say("Ha fallado.", think="t")
    closed = [chat.user("x"), GOLD, chat.result("ok"), chat.say("Listo.", think="t")]
    assert tool_calls.target(row(closed)) == 1
    mended = [chat.user("x"), wrong, chat.result("error"), GOLD, chat.result("ok")]
    assert tool_calls.target(row(mended, [1])) == 3
    failed = row([chat.user("x"), GOLD, chat.result("error"), report], [0, 1])
    assert tool_calls.history(failed) == failed.messages[:3]
    assert judged(failed, "t\n</think>\n\nNo se pudo.").right
    assert not judged(failed, "t\n</think>\n\n" + CALL.format(PATH + COUNT)).right
