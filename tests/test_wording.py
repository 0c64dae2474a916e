"""User texts made from calls: every value stands in them, sides share no template, two thirds are Spanish."""

import json
import random
import re
from typing import Any

import pytest

from dataset_builder.drawing import arguments, methods, values
from dataset_builder.schemas import ToolSchema
from dataset_builder.talking import tool_names, wording
from tests.five_servers import TOOLS


def requests(split: str, seeds: int = 2) -> list[tuple[ToolSchema, dict[str, Any], str, str]]:
    """(tool, arguments, text, template) for every tool of the five servers."""
    made = []
    for one in TOOLS.values():
        for seed in range(seeds):
            rng = random.Random(f"{split} {seed} {one.shown_name}")
            call = arguments.draw_call(one, rng, split)
            made.append((one, call, *wording.request(one, call, rng, split)))
    return made


def written(value: Any) -> list[str]:
    """How a value may stand in a text, word for word: lists by item, objects as JSON."""
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return [part for item in value for part in written(item)]
    if isinstance(value, bool):
        return []
    return [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)]


@pytest.mark.parametrize("split", values.SPLITS)
def test_every_value_stands_in_the_text_word_for_word(split):
    for one, call, text, _ in requests(split):
        for name, value in call.items():
            if name == methods.selector(one.properties):
                continue  # said by the verb
            for part in written(value):
                assert part in text, (one.shown_name, name)


def test_sides_share_neither_template_nor_text():
    found = {split: requests(split) for split in values.SPLITS}
    for what in (2, 3):
        sets = {split: {str(entry[what]) for entry in made} for split, made in found.items()}
        assert not sets["train"] & sets["eval"]
        assert not sets["train"] & sets["dev"]
        assert not sets["dev"] & sets["eval"]


def test_two_thirds_are_spanish_and_the_template_says_which():
    templates = [template for *_, template in requests("train", 4)]
    assert 0.6 < sum(map(wording.is_spanish, templates)) / len(templates) < 0.73


def test_the_words_of_the_splits_differ():
    words = tool_names.lexicon()
    for tongue in ("es", "en"):
        groups = [words["frames"][tongue], *(verb[tongue] for verb in words["verbs"].values())]
        for group in groups:
            train, dev, held_out = ({text.casefold() for text in group[split]} for split in values.SPLITS)
            assert not train & dev
            assert not train & held_out
            assert not dev & held_out


def test_a_value_that_holds_a_fence_or_every_quote_is_still_told_apart():
    for value in ("a\n```js\nb\n```\n", '«a» "b" `c`', '{"a": 1}', "  x  "):
        block = wording.fenced(value)
        fence = re.match(r"`+", block)
        assert fence
        assert value in block
        assert fence[0] not in value


@pytest.mark.parametrize(
    ("key", "call", "text"),
    [
        ("github.list_branches", {"owner": "ana", "repo": "web"}, "las ramas en ana/web"),
        ("github.issue_read", {"method": "get_comments", "owner": "a", "repo": "b", "issue_number": 7},
         "los comentarios de la issue 7 en a/b"),
        ("atlassian.jira_get_transitions", {"issue_key": "WEB-4"}, "las transiciones para la issue WEB-4"),
        ("docmost.get_page", {"page_id": "p1"}, "la página p1"),
    ],
)  # fmt: skip
def test_a_call_is_said_as_people_say_it(key, call, text):
    for seed in range(6):
        said, _ = wording.request(TOOLS[key], call, random.Random(seed), "eval", "es")
        flat = said.replace("En a", "en a")
        assert text in said or text.split(" en ")[0] in flat
