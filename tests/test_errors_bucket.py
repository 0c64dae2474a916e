"""After a tool's error: mended within bounds, or told; the model's own mistake carries no loss."""

import json
from collections import Counter
from typing import Any

from core import toolcalls
from core.chat import Row, assistant_turns
from core.toolcalls import ToolCall
from tests.five_servers import made


def of_kind(*kinds: str) -> list[Row]:
    """Training rows of these kinds."""
    found = [row for row in made("errors", "train", 50) if row.meta["kind"] in kinds]
    assert found, kinds
    return found


def calls(row: Row) -> list[dict[str, Any]]:
    """The functions that a row calls, in order."""
    return [call["function"] for message in row.messages for call in message.get("tool_calls") or []]


def results(row: Row) -> list[str]:
    """What tools answered."""
    return [message["content"] for message in row.messages if message["role"] == "tool"]


def test_every_shape_of_error_is_there():
    kinds = {row.meta["kind"] for row in made("errors", "train", 50)}
    assert kinds >= {
        "validation",
        "timeout",
        "given up",
        "refused",
        "not found",
        "next page",
        "not connected",
    }
    assert any(
        "Tool execution failed:" in text for row in made("errors", "train", 50) for text in results(row)
    )


def test_the_wrong_call_is_wrong_and_carries_no_loss_and_the_mended_one_is_valid():
    for row in of_kind("validation"):
        first, second, *_ = (ToolCall(call["name"], call["arguments"]) for call in calls(row))
        assert row.train_turns == [1, 2]
        assert toolcalls.faults(first, row.tools)
        assert not toolcalls.faults(second, row.tools)
        assert len(assistant_turns(row.messages)) == 3


def test_no_call_is_tried_more_than_twice():
    for row in made("errors", "train", 50):
        made_calls = Counter(json.dumps(call, sort_keys=True) for call in calls(row))
        assert max(made_calls.values()) <= 2


def test_a_failure_that_no_call_can_mend_is_told_in_its_own_words_and_not_tried_again():
    for row in of_kind("refused", "failed", "not connected", "given up"):
        error = results(row)[-1]
        assert error in row.messages[-1]["content"]
        assert not row.messages[-1].get("tool_calls")
        if row.meta["kind"] != "given up":
            assert len(set(map(str, calls(row)))) == len(calls(row))


def test_a_missing_thing_is_looked_up_and_the_right_id_comes_from_the_list():
    for row in of_kind("not found"):
        wrong, _, right = calls(row)
        changed = {k: v for k, v in right["arguments"].items() if wrong["arguments"].get(k) != v}
        assert len(changed) == 1
        (value,) = changed.values()
        assert str(value) in results(row)[1]


def test_a_cut_list_is_followed_to_the_page_that_has_what_is_looked_for():
    for row in of_kind("next page"):
        first, second = calls(row)
        assert second["arguments"] == first["arguments"] | {"page": 2}
        sought = row.messages[-1]["content"].partition(": ")[2].rstrip(".")
        assert json.loads(results(row)[0])["has_next"]
        assert any(part.partition(": ")[2] in results(row)[1] for part in sought.split(", "))
