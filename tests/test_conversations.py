"""The user's own conversations: each form is recognised, each fault named with its line, sides are apart."""

import json
from pathlib import Path

import pytest

from core import artifacts, chat, generate
from core.errors import Refused, UserError
from dataset_builder import build, conversations
from dataset_builder.documents import conversation_lines
from tests import little_llama

ASKED, SAID = "¿Quién eres?", "Soy su asistente, a su servicio."
TALK = [chat.user(ASKED), {"role": "assistant", "content": SAID}]
PAIR = {"prompt": ASKED, "completion": SAID}
SYSTEM = [{"role": "system", "content": "Trate de usted."}]


def line(entry: object) -> str:
    return json.dumps(entry, ensure_ascii=False)


def read(path: Path, content: str | bytes) -> list[tuple[int, list[chat.Message]]]:
    file = path / "mine.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return conversation_lines.read(file)


@pytest.mark.parametrize(
    ("entry", "messages"),
    [
        (PAIR, TALK),
        ({"messages": TALK}, TALK),
        ({"messages": SYSTEM + TALK, "id": 7}, SYSTEM + TALK),
        ({"text": f"<s>[INST] {ASKED} [/INST] {SAID}</s>"}, TALK),
        ({"text": f"[INST] {ASKED} [/INST] {SAID}</s><s>[INST] {ASKED} [/INST]{SAID}"}, TALK * 2),
        (
            {"text": f"<s>[INST] <<SYS>>\nTrate de usted.\n<</SYS>>\n\n{ASKED} [/INST] {SAID} </s>"},
            SYSTEM + TALK,
        ),
    ],
)  # fmt: skip
def test_each_form_is_recognised(tmp_path: Path, entry: object, messages: list[chat.Message]) -> None:
    assert read(tmp_path, line(entry) + "\n") == [(1, messages)]


def test_forms_mix_and_blank_lines_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    rows = [line(PAIR), "", line({"messages": TALK}), "  ", line({"text": f"[INST] {ASKED} [/INST] {SAID}"})]
    found = read(tmp_path, b"\xef\xbb\xbf" + "\r\n".join(rows).encode())
    assert found == [(1, TALK), (3, TALK), (5, TALK)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('{"prompt": "a"', "broken JSON (Expecting ',' delimiter, column 15); mend or delete the line"),
        ("{'prompt': 'a'}", "broken JSON"),
        ('["a"]x', "broken JSON"),
        ("3", "expected a JSON object with messages, prompt with completion, or text with [INST], found int"),
        ("{}", "it has nothing"),
        (line({"question": "a", "answer": "b"}), "it has question, answer"),
        (line(PAIR | {"messages": TALK}), "it has prompt, completion, messages"),
        (line({"prompt": "a"}), "prompt without completion"),
        (line({"prompt": ["a"], "completion": "b"}), "prompt must be a text, found list"),
        (line({"prompt": "a", "completion": ""}), "messages[1]: content is empty"),
        (line({"messages": "a"}), "messages: expected a non-empty list"),
        (line({"messages": []}), "messages: expected a non-empty list"),
        (line({"messages": [{"role": "bot", "content": "a"}]}), "messages[0]: role must be one of"),
        (line({"messages": [{"role": "user", "content": 1}]}), "messages[0]: content must be a text"),
        (line({"messages": TALK[:1]}), "the last turn is the user's; nothing follows to be learnt"),
        (line({"messages": TALK[:1] + TALK}), "messages[1]: user where assistant is due"),
        (line({"messages": TALK + SYSTEM}), "messages[2]: system where user is due"),
        (line({"messages": TALK[1:] + TALK}), "messages[0]: assistant where user is due"),
        (line({"text": "Hola"}), "text: expected [INST]"),
        (line({"text": "uno [INST] a [/INST] b"}), "text: expected [INST]"),
        (line({"text": 3}), "text must be a text, found int"),
        (line({"text": "[INST] a [/INST] "}), "messages[1]: content is empty"),
    ],
)
def test_a_wrong_line_is_named_with_its_number(tmp_path: Path, bad: str, reason: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, f"{line(PAIR)}\n\n{bad}\n{bad}\n")
    assert str(caught.value).startswith(f"{tmp_path / 'mine.jsonl'}:3: ")
    assert reason in str(caught.value)
    assert str(caught.value).endswith("(and 1 more lines are wrong)")


@pytest.mark.parametrize(
    "content", [json.dumps(PAIR, indent=2), json.dumps([PAIR, PAIR]), "[\n" + line(PAIR)]
)
def test_json_over_several_lines_is_told_how_to_become_lines(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match=r"mine\.jsonl:1: JSON spread over several lines.*jq -c"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no conversation in it"),
        (b"\n \n", "no conversation in it"),
        (line(PAIR).encode() + b'\n{"prompt": "\xe9"}', "mine.jsonl:2: not UTF-8"),
    ],
)
def test_an_empty_file_and_another_encoding_are_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        read(tmp_path, content)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file; correct DATA"):
        conversation_lines.read(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="is a directory"):
        conversation_lines.read(tmp_path)


def words(models: Path, **settings: object) -> list[str]:
    given = {
        "PROFILE": little_llama.NAME, "RUN": "r", "MODELS_DIR": models, "DATA": "", "SECRETS_FILE": "",
        "MCP_CONFIG": "examples/mcp.json", "SECRETS_ALLOWED": "", "MAX_LENGTH": "", "DATA_SEED": 0,
        "REQUESTS": "", "ROWS": "", "HELD_OUT_SKILLS": "", "TEACHER": "", "JUDGE": "", "TOOLS_SHOWN": "",
        "EVAL_SEED": 0,
    }  # fmt: skip
    return [f"{name}={value}" for name, value in (given | settings).items()]


def own(little_desk: Path, count: int = 20, **more: object) -> Path:
    """A file of the user's with that many conversations, and one more where `more` says what."""
    rows = [
        {"prompt": f"¿Cuánto vale el artículo {i}?", "completion": f"Vale {i} euros, señor."}
        for i in range(count)
    ]
    file = little_desk / "mine.jsonl"
    file.write_text("".join(line(row) + "\n" for row in [*rows, *([more] if more else [])]), encoding="utf-8")
    return file


def sides(little_desk: Path) -> tuple[list[chat.Row], list[chat.Row]]:
    path = little_desk / "data/little/dataset"
    return chat.read_rows(path / "train.jsonl"), chat.read_rows(path / "eval.jsonl")


def test_the_examples_become_a_dataset_whose_sides_share_no_question(
    little_desk: Path, little_models: Path
) -> None:
    assert build.main(words(little_models)) == 0
    train, held_out = sides(little_desk)
    asked = [
        {m["content"] for row in side for m in row.messages if m["role"] == "user"}
        for side in (train, held_out)
    ]
    assert not asked[0] & asked[1]
    assert len(train) == 201
    assert len([row for row in held_out if row.bucket == "formal"]) == 68
    assert {row.bucket for row in held_out} == {"formal", "general"}
    assert (little_desk / "data/little/dataset.html").exists()
    before = artifacts.require(little_desk / "data/little/dataset", "dataset")
    assert build.main(words(little_models)) == 0
    assert artifacts.require(little_desk / "data/little/dataset", "dataset") == before


def test_a_tenth_of_the_users_own_is_held_out_and_the_bytes_repeat(
    little_desk: Path, little_models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = own(little_desk, 20, messages=SYSTEM + TALK)
    build.main(words(little_models, DATA=file))
    train, held_out = sides(little_desk)
    first = (little_desk / "data/little/dataset/train.jsonl").read_bytes()
    assert (len(train), len([row for row in held_out if row.bucket == "formal"])) == (19, 2)
    folded = [row for row in train + held_out if row.messages[0]["content"].startswith("Trate de usted.")]
    assert [len(row.messages) for row in folded] == [2]
    assert "the chat template has no system prompt" in capsys.readouterr().out
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    build.main(words(little_models, DATA=file))
    assert (little_desk / "data/little/dataset/train.jsonl").read_bytes() == first


def test_a_question_asked_twice_is_never_held_out(little_desk: Path) -> None:
    twice = [("Hola", "Buenos días."), ("Hola", "Buenas."), *((f"¿{i}?", "Sí.") for i in range(10))]
    rows = [
        chat.Row(
            id=str(i), bucket="formal", group=f"{i}", split="train", tools=[],
            messages=[chat.user(q), {"role": "assistant", "content": a}],
        )
        for i, (q, a) in enumerate(twice)
    ]  # fmt: skip
    train, held_out = conversations.hold_out(rows, little_desk)
    assert len(held_out) == 1
    assert {"0", "1"} <= {row.id for row in train}


@pytest.mark.parametrize(
    ("count", "settings", "reason"),
    [
        (9, {}, "9 conversations; at least 10 are needed"),
        (20, {"MAX_LENGTH": 3}, "no row is left on a side, over MAX_LENGTH"),
        (20, {"DATA": "nowhere.jsonl"}, "nowhere.jsonl: no such file"),
    ],
)
def test_what_cannot_be_a_dataset_is_refused(
    little_desk: Path, little_models: Path, count: int, settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        build.main(words(little_models, **({"DATA": own(little_desk, count)} | settings)))
    assert not (little_desk / "data/little/dataset").exists()


def test_a_secret_among_the_conversations_stops_the_build(little_desk: Path, little_models: Path) -> None:
    key = "AKIA" + "Q3EGRIZ7KXJ5WT2M"
    with pytest.raises(Refused):
        build.main(
            words(
                little_models, DATA=own(little_desk, 20, prompt="¿La clave?", completion=f"Es {key}, señor.")
            )
        )


def test_data_is_refused_where_rows_come_from_servers(little_desk: Path, little_models: Path) -> None:
    with pytest.raises(UserError, match="DATA=mine: PROFILE=tiny makes rows from servers and skills"):
        build.main(words(little_models, PROFILE="tiny", DATA="mine"))


def test_the_labelled_text_is_the_answer_and_its_end(little_models: Path, little_desk: Path) -> None:
    from core.render import labelled_texts, render

    tokenizer = generate.load_tokenizer(little_models / little_llama.NAME)
    row = chat.Row(id="a", bucket="formal", group="a", split="train", messages=TALK * 2, tools=[])
    assert [labelled_texts(s, tokenizer) for s in render(row, tokenizer)] == [
        [SAID + "</s>"],
        [SAID + "</s>"],
    ]
