"""Windows over long conversations: whole turns, each trained once, beside the requests that they answer."""

import pytest

from core import chat
from core.chat import Row
from core.render import labelled_texts, render, trained_messages
from dataset_builder.verifying import rendering
from dataset_builder.verifying.windows import windows
from tests.rows import log, row

STEPS = 14


def long_row(*, train_turns: list[int] | None = None, requests: int = 1) -> Row:
    messages = chat.system("# Skill: informe\nSigue los pasos.")
    for request in range(requests):
        messages.append(chat.user(f"Haz el informe {request} de «web/rubo»"))
        for step in range(STEPS):
            messages += [
                log(max_count=100 * request + step),
                chat.result(f"resultado {request}.{step} " * 12),
            ]
        messages.append(chat.say(f"Informe {request} terminado.", think="Todo leído."))
    return row(messages, skill="informe", train_turns=train_turns)


@pytest.mark.parametrize("max_length", [700, 900, 1300])
@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("train_turns", [None, [0, 5, 6, 13, 14]])
def test_every_trained_turn_is_trained_once_in_order_within_the_length(
    tokenizer, max_length, requests, train_turns
):
    whole = long_row(requests=requests, train_turns=train_turns)
    cut = windows(whole, tokenizer, max_length)
    assert len(cut) > 1
    learnt = [one.messages[i] for one in cut for i in trained_messages(one)]
    assert learnt == [whole.messages[i] for i in trained_messages(whole)]
    for window in cut:
        (sample,) = render(window, tokenizer)
        assert len(sample.input_ids) <= max_length
        assert len(labelled_texts(sample, tokenizer)) == len(trained_messages(window))


def test_a_window_keeps_the_requests_and_whole_last_turns(tokenizer):
    whole = long_row(requests=2)
    for window in windows(whole, tokenizer, 900):
        assert window.messages[:2] == whole.messages[:2]
        shown = [whole.messages.index(message) for message in window.messages]
        assert shown == sorted(shown)
        asked = max(i for i, message in enumerate(window.messages) if message["role"] == "user")
        last = max(trained_messages(window))
        request = next(i for i in range(shown[last], 0, -1) if whole.messages[i]["role"] == "user")
        assert shown[asked] == request, "the latest request before what is trained is there"
        tail = shown[max(2, asked + 1) :]
        assert tail == list(range(tail[0], tail[0] + len(tail))), "without a hole"
        for i, message in enumerate(window.messages):
            if message["role"] == "tool":
                assert window.messages[i - 1].get("tool_calls"), "no result without its call"


def test_windows_use_the_room_that_they_have(tokenizer):
    lengths = [len(render(one, tokenizer)[0].input_ids) for one in windows(long_row(), tokenizer, 900)]
    turn = lengths[0] / 8
    assert min(lengths) > 900 - 2 * turn


def test_only_rows_of_a_skill_become_windows_and_others_are_dropped_and_counted(tokenizer):
    whole = long_row()
    kept, none = rendering.keep([whole], tokenizer, 900)
    assert none == []
    assert [one.id for one in kept] == [f"{whole.id}-w{n}" for n in range(1, len(kept) + 1)]
    assert [one.meta["window"] for one in kept] == [[n, len(kept)] for n in range(1, len(kept) + 1)]
    kept, (drop,) = rendering.keep([row(whole.messages)], tokenizer, 900)
    assert kept == []
    assert (drop.step, drop.reason) == ("render", "over MAX_LENGTH")


def test_a_row_that_fits_is_left_as_it_is(tokenizer):
    whole = long_row()
    (kept,), none = rendering.keep([whole], tokenizer, 8192)
    assert none == []
    assert (kept.id, kept.messages, kept.train_turns) == (whole.id, whole.messages, None)


def test_a_turn_that_does_not_fit_by_itself_drops_the_row(tokenizer):
    huge = row([chat.user("Escribe"), chat.say("palabra " * 900, think="t")], skill="informe")
    kept, (drop,) = rendering.keep([huge], tokenizer, 900)
    assert kept == []
    assert drop.reason == "over MAX_LENGTH in a single turn"
