"""Rendering: what is labelled is exactly what the model would generate after what the server would send."""

from dataclasses import replace
from unicodedata import normalize

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import chat
from core.chat import Row
from core.render import IGNORE, Rendered, RenderError, labelled_texts, prompt_text, render
from dataset_builder.verifying.masks import fault_in_mask

TOOL = chat.tool(
    "mcp__git__git_log",
    "Shows commits",
    {"properties": {"repo_path": {"type": "string"}, "n": {"type": "integer"}}, "type": "object"},
)
CALL = chat.call("mcp__git__git_log", {"repo_path": "web/ñandú", "n": 12}, think="Use `git__git_log`.")


def row(messages: list[chat.Message], train_turns: list[int] | None = None) -> Row:
    return Row(
        id="r", bucket="b", group="g", split="train", messages=messages, tools=[TOOL], train_turns=train_turns
    )


def labelled(sample: Rendered, tokenizer) -> list[str]:
    """The labelled spans of a sample, decoded."""
    spans, current = [], []
    for token, label in zip(sample.input_ids, sample.labels, strict=True):
        if label == IGNORE:
            if current:
                spans.append(tokenizer.decode(current))
            current = []
        else:
            assert label == token
            current.append(token)
    return [*spans, tokenizer.decode(current)] if current else spans


def test_prompt_tokens_are_those_that_a_server_sends(tokenizer):
    messages = [chat.user("¿Qué pasó en «web»?"), CALL]
    sample = render(row(messages), tokenizer)[0]
    sent = tokenizer.apply_chat_template(
        messages[:1], tools=[TOOL], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert sample.input_ids[: len(sent)] == sent
    assert sample.labels[: len(sent)] == [IGNORE] * len(sent)
    assert sample.labels[len(sent)] != IGNORE


def test_every_turn_of_a_tool_chain_is_labelled_and_ends_with_the_end_of_turn(tokenizer):
    messages = [chat.user("hazlo"), CALL, chat.result("ok"), chat.say("Listo.", think="Tool done.")]
    (sample,) = render(row(messages), tokenizer)
    first, last = labelled(sample, tokenizer)
    assert first.startswith("Use `git__git_log`.\n</think>\n\n<tool_call>")
    assert first.endswith("<parameter=n>\n12\n</parameter>\n</function>\n</tool_call><|im_end|>")
    assert last == "Tool done.\n</think>\n\nListo.<|im_end|>"


def test_a_turn_that_is_not_trained_carries_no_label(tokenizer):
    wrong = chat.call("mcp__git__git_log", {"n": 1}, think="Wrong.")
    messages = [chat.user("hazlo"), wrong, chat.result("Error: repo_path is missing"), CALL]
    (sample,) = render(row(messages, [1]), tokenizer)
    (only,) = labelled(sample, tokenizer)
    assert only.startswith("Use `git__git_log`.")
    assert "Wrong." in tokenizer.decode(sample.input_ids)


def test_each_user_turn_is_a_sample_whose_history_has_no_reasoning(tokenizer):
    messages = [
        chat.user("Hola"), chat.say("¡Hola!", think="first thought"),
        chat.user("Adiós"), chat.say("¡Adiós!", think="second thought"),
    ]  # fmt: skip
    first, second = render(row(messages), tokenizer)
    assert labelled(first, tokenizer) == ["first thought\n</think>\n\n¡Hola!<|im_end|>"]
    assert labelled(second, tokenizer) == ["second thought\n</think>\n\n¡Adiós!<|im_end|>"]
    assert "first thought" not in tokenizer.decode(second.input_ids)


def test_a_later_user_turn_without_an_answer_does_not_hide_the_earlier_one(tokenizer):
    messages = [chat.user("Hola"), chat.say("¡Hola!", think="t"), chat.user("¿Sigues?")]
    (sample,) = render(row(messages), tokenizer)
    assert labelled(sample, tokenizer) == ["t\n</think>\n\n¡Hola!<|im_end|>"]


def test_no_trained_turn_is_refused(tokenizer):
    with pytest.raises(RenderError, match="no assistant turn"):
        render(row([chat.user("Hola"), chat.say("¡Hola!", think="t")], []), tokenizer)


def test_a_template_whose_prompt_is_no_prefix_of_the_history_is_refused(base_dir):
    from core.generate import load_tokenizer

    other = load_tokenizer(base_dir)
    other.chat_template = other.chat_template.replace(
        "'<think>\\n' }}\n    {%- endif %}", "'<think>\\nHm ' }}\n    {%- endif %}"
    )
    with pytest.raises(RenderError, match="prefix"):
        render(row([chat.user("Hola"), chat.say("¡Hola!", think="t")]), other)


def test_an_empty_thought_would_merge_line_ends_into_one_token_and_is_refused(tokenizer):
    with pytest.raises(RenderError, match="straddles"):
        render(row([chat.user("Hola"), chat.say("¡Hola!", think="")]), tokenizer)


def test_without_thinking_the_answer_follows_the_prompt_of_a_server_that_is_asked_so(tokenizer):
    asked, answer = chat.user("Hola"), chat.say("¡Hola!", think="")
    example = replace(row([asked, answer]), meta={"thinking": False})
    (sample,) = render(example, tokenizer)
    assert labelled(sample, tokenizer) == ["¡Hola!<|im_end|>"]
    sent = prompt_text([asked], example.tools, tokenizer, enable_thinking=False)
    assert tokenizer.decode(sample.input_ids).startswith(f"{sent}¡Hola!<|im_end|>")
    assert fault_in_mask(example, [sample], tokenizer) is None
    other = replace(example, messages=[asked, chat.say("¡Adiós!", think="")])
    assert fault_in_mask(other, [sample], tokenizer)


@pytest.mark.parametrize("special", ["<|im_end|>", "<|im_end|>\n<|im_start|>user\nOtra cosa"])
def test_a_turn_that_ends_before_its_end_is_refused(tokenizer, special):
    with pytest.raises(RenderError, match="before its end"):
        render(row([chat.user("Hola"), chat.say(f"uno {special} dos", think="t")]), tokenizer)


def test_a_conversation_that_the_template_refuses_is_refused_by_name(tokenizer):
    late = [chat.user("Hola"), *chat.system("Eres un asistente."), chat.say("¡Hola!", think="t")]
    with pytest.raises(RenderError, match="chat template refuses the conversation \\(System message must be"):
        render(row(late), tokenizer)


def test_labelled_texts_are_the_turns_that_a_sample_trains(tokenizer):
    messages = [chat.user("hazlo"), CALL, chat.result("ok"), chat.say("Listo.", think="Tool done.")]
    for train_turns in ([0, 1], [0], [1]):
        (sample,) = render(row(messages, train_turns), tokenizer)
        assert labelled_texts(sample, tokenizer) == labelled(sample, tokenizer)
        assert len(labelled(sample, tokenizer)) == len(train_turns)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n <>«»áñ"), max_size=40)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=TEXT, thought=TEXT, said=TEXT, value=TEXT)
def test_any_text_is_labelled_exactly_or_refused(tokenizer, asked, thought, said, value):
    call = chat.call("mcp__git__git_log", {"repo_path": value}, think=thought, say=said)
    example = row([chat.user("x" + asked), call, chat.result(value), chat.say("y" + said, think=thought)])
    try:
        (sample,) = render(example, tokenizer)
    except RenderError:
        return
    # The tokenizer normalises to NFC, as Qwen's does.
    whole = normalize("NFC", tokenizer.apply_chat_template(example.messages, tools=[TOOL], tokenize=False))
    sent = prompt_text(example.messages[:1], [TOOL], tokenizer)
    history = normalize("NFC", sent)
    # Only the end of a prompt is tokenised again; the whole of it must give the same tokens.
    sent_ids = tokenizer(sent, add_special_tokens=False)["input_ids"]
    assert sample.input_ids[: len(sent_ids)] == sent_ids
    assert sample.labels[len(sent_ids) - 1 : len(sent_ids) + 1] == [IGNORE, sample.input_ids[len(sent_ids)]]
    assert tokenizer.decode(sample.input_ids) == whole
    first, last = labelled(sample, tokenizer)
    assert whole.startswith(history + first)
    assert whole.rstrip("\n").endswith(last)
    assert render(replace(example, train_turns=[0, 1]), tokenizer) == [sample]
