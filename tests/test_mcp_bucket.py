"""Rows that call the user's servers: valid, of one side, truthful about where their values come from."""

import json
import random
from collections import Counter
from typing import Any

import pytest

from core import chat
from core.chat import Row
from dataset_builder import secrets_gate
from dataset_builder.buckets import errors, mcp, negatives, penpot
from dataset_builder.talking import prompts, wording
from dataset_builder.verifying import rendering, split
from tests.five_servers import SERVERS, TOOLS, all_five, kept, made, only

BUCKETS = {"mcp": 120, "penpot": 40, "negatives": 50, "errors": 50}


def rows(side: str) -> list[Row]:
    """A few hundred rows of one side, over the buckets."""
    return [row for bucket, count in BUCKETS.items() for row in made(bucket, side, count)]


def calls(row: Row) -> list[dict[str, Any]]:
    """The functions that a row calls, in order."""
    return [call["function"] for message in row.messages for call in message.get("tool_calls") or []]


def of_kind(*kinds: str) -> list[Row]:
    """Training rows of the mcp bucket of these kinds."""
    found = [row for row in made("mcp", "train", 120) if row.meta["kind"] in kinds]
    assert found, kinds
    return found


@pytest.mark.parametrize("side", ["train", "dev", "eval"])
def test_rows_pass_every_check_of_the_build(side):
    own = rows(side)
    assert len(own) == sum(BUCKETS.values())
    passed, dropped = kept(own)
    assert {drop.step for drop in dropped} <= {"duplicates"}, [drop.reason for drop in dropped]
    assert len(passed) > 0.97 * len(own)
    texts = [(row.id, json.dumps([row.messages, row.tools], ensure_ascii=False)) for row in own[::12]]
    assert secrets_gate.scan(texts, None, {}) == []


def test_sides_share_no_group_request_template_or_value():
    assert split.leaks(rows("train"), rows("eval")) == []
    assert split.leaks(rows("train"), rows("dev")) == []


def test_rows_are_rendered_with_an_exact_mask_within_the_length(tokenizer):
    sample = [row for row in rows("train") if row.meta["kind"] != "cannot_answer"][::9]
    passed, dropped = rendering.keep(sample, tokenizer, 8192)
    assert [drop.reason for drop in dropped] == []
    assert len(passed) == len(sample)


def test_the_same_seed_gives_the_same_rows():
    for make in (mcp.rows, penpot.rows, negatives.rows, errors.rows):
        first, second = (
            json.dumps([row.messages for row in make(all_five(), random.Random(5), "dev", 12)])
            for _ in range(2)
        )
        assert first == second


def test_every_kind_is_there_and_most_tools():
    kinds = Counter(row.meta["kind"] for row in made("mcp", "train", 120))
    assert kinds.keys() >= {"single", "answered", "chain", "long chain", "parallel", "rule", "temptation"}
    assert len({call["name"] for row in made("mcp", "train", 120) for call in calls(row)}) > 80


def test_in_a_chain_the_last_call_takes_from_the_first_answer_what_the_user_did_not_say():
    for row in of_kind("chain", "long chain"):
        request = next(m["content"] for m in row.messages if m["role"] == "user")
        results = [m["content"] for m in row.messages if m["role"] == "tool"]
        last = calls(row)[-1]["arguments"]
        fed = [v for v in last.values() if str(v) not in request and str(v) in results[0]]
        assert fed, row.id
        thought = [m["reasoning_content"] for m in row.messages if m["role"] == "assistant"][1]
        assert any(str(value) in thought for value in fed)


def test_parallel_calls_are_one_turn_with_an_answer_each():
    for row in of_kind("parallel"):
        turn = next(m for m in row.messages if m["role"] == "assistant")
        assert len(turn["tool_calls"]) in (2, 3)
        assert sum(m["role"] == "tool" for m in row.messages) == len(turn["tool_calls"])
        assert len({json.dumps(call, sort_keys=True) for call in turn["tool_calls"]}) == len(
            turn["tool_calls"]
        )


def test_an_answer_repeats_what_the_result_says():
    for row in of_kind("answered"):
        result = next(m["content"] for m in row.messages if m["role"] == "tool")
        said = row.messages[-1]["content"]
        words = {word.strip('"{}[],:') for word in result.split() if len(word) > 5} - {"success"}
        assert not words or any(word in said for word in words)


def test_who_pushes_against_a_rule_is_told_it_in_the_server_s_words():
    for row in of_kind("temptation"):
        texts = [SERVERS[row.server or ""].instructions, *(t.description for t in TOOLS.values())]
        texts += [str(s.get("description")) for t in TOOLS.values() for s in t.properties.values()]
        quote = (
            row.messages[-1]["content"].rpartition("«")[2].rpartition("»")[0]
            or row.messages[-1]["content"].rpartition(': "')[2].rpartition('"')[0]
        )
        assert quote
        assert any(quote in text for text in texts)


def test_where_another_server_could_be_meant_the_request_names_the_product():
    for row in of_kind("single", "answered"):
        key = row.group.partition(":")[0]
        call = calls(row)[0]["arguments"]
        if prompts.is_ambiguous(all_five(), key, call, row.tools):
            request = next(m["content"] for m in row.messages if m["role"] == "user")
            assert wording.product_of(TOOLS[key]) in request


def test_instructions_stand_in_the_prompt_of_the_servers_that_are_shown():
    for row in made("mcp", "train", 120):
        shown = {tool["function"]["name"].split("__")[1] for tool in row.tools}
        head = row.messages[0]["content"] if row.messages[0]["role"] == "system" else ""
        for name, info in SERVERS.items():
            if info.instructions:
                assert (info.instructions.strip() in head) == (name in shown)


def test_penpot_s_guide_is_read_first_and_once():
    for row in made("penpot", "train", 40):
        names = [call["name"].rpartition("__")[2] for call in calls(row)]
        assert names[0] == "high_level_overview"
        assert names.count("high_level_overview") == 1


def test_a_user_with_one_server_gets_rows_and_one_without_penpot_none_of_its():
    for server in ("docmost", "penpot"):
        for make in (mcp.rows, negatives.rows, errors.rows, penpot.rows):
            found = make(only(server), random.Random(0), "train", 12)
            assert {call["name"].split("__")[1] for row in found for call in calls(row)} <= {server}
    assert penpot.rows(only("docmost"), random.Random(0), "train", 5) == []
    assert len(mcp.rows(only("docmost"), random.Random(0), "train", 40)) == 40
    assert len(penpot.rows(only("penpot"), random.Random(0), "train", 20)) == 20


def test_no_tools_no_rows():
    for make in (mcp.rows, errors.rows, penpot.rows):
        assert make(only(), random.Random(0), "train", 5) == []


def test_a_turn_may_carry_several_calls():
    assert all(chat.fault_in(row.messages) is None for row in of_kind("parallel"))
