"""What tools answer: in keeping with the call, of one side, and enough for the next call."""

import json
import random
from typing import Any

import pytest

from dataset_builder.drawing import arguments, values
from dataset_builder.talking import chains, results
from dataset_builder.talking.tool_names import act_of, head_of, identifies, verb_and_words
from tests.five_servers import TOOLS


def answer(key: str, call: dict[str, Any], seed: int = 0) -> str:
    """The text that a tool answers with."""
    return results.result_of(TOOLS[key], call, random.Random(seed), "train")


def test_every_tool_answers_every_call_with_some_text():
    for one in TOOLS.values():
        call = arguments.draw_call(one, random.Random(1), "eval")
        assert results.result_of(one, call, random.Random(1), "eval").strip()


def test_what_is_read_is_what_was_asked_for():
    call = {"method": "get", "owner": "ana", "repo": "web", "issue_number": 731}
    assert json.loads(answer("github.issue_read", call))["number"] == 731


def test_what_is_written_comes_back():
    call = {"owner": "ana", "repo": "web", "title": "Menú roto"}
    told = json.loads(answer("github.create_pull_request", call | {"head": "a", "base": "b"}))
    assert told["title"] == "Menú roto"
    assert told["number"]


@pytest.mark.parametrize("key", ["github.list_issues", "gitea.list_branches", "docmost.search_pages"])
def test_a_list_holds_the_items_that_it_is_given_in_any_manner(key):
    items = [{"id": 11, "title": "uno"}, {"id": 22, "title": "dos"}]
    text = results.result_of(TOOLS[key], {}, random.Random(0), "train", items=items)
    assert all(str(value) in text for item in items for value in item.values())


def test_free_texts_of_an_answer_are_of_its_side():
    for side in values.SPLITS:
        for key in ("github.list_issues", "docmost.search_pages", "gitea.list_releases"):
            one = TOOLS[key]
            thing = head_of(verb_and_words(one, {})[1])
            assert thing
            made = results.item(one, thing, random.Random(3), side)
            texts = [value for name, value in made.items() if isinstance(value, str) and name != "state"]
            assert {values.side(text) for text in texts} == {side}


def test_chains_are_found_on_every_server_that_lists_what_it_acts_on():
    found: dict[str, chains.Chain] = {}
    for one in TOOLS.values():
        chain = chains.drawn(TOOLS, one, random.Random(2), "train")
        if chain:
            found.setdefault(one.server, chain)
            first, last = chain.steps[0], chain.steps[-1]
            assert str(chain.value) in first.result
            assert chain.called in first.result
            assert last.arguments[chain.argument] == chain.value
            assert chain.value not in first.arguments.values()
            assert first.tool.fault_in(first.arguments) is None
    assert found.keys() == {"atlassian", "docmost", "gitea", "github"}


@pytest.mark.parametrize(
    ("key", "call", "act"),
    [
        ("github.pull_request_read", {"method": "get_review_comments"}, ("get", "review comment")),
        ("gitea.actions_run_read", {"method": "list_workflows"}, ("list", "workflow")),
        ("atlassian.jira_batch_create_issues", {}, ("create", "issue")),
        ("github.add_comment_to_pending_review", {}, ("add", "comment")),
        ("docmost.get_current_user", {}, ("get", "current user")),
    ],
)
def test_a_name_says_verb_and_thing(key, call, act):
    assert act_of(TOOLS[key], call) == act


def test_an_index_is_of_what_is_numbered():
    nouns = {one: head_of((one,)) for one in ("issues", "reviewers", "branches")}
    assert nouns["issues"]
    assert nouns["reviewers"]
    assert identifies("index", nouns["issues"])
    assert not identifies("index", nouns["reviewers"])
