"""Near-duplicates: the same request said nearly alike goes, the same template with other values stays."""

import random
from dataclasses import replace

import pytest

from core import chat
from core.chat import Row
from dataset_builder.verifying.duplicates import THRESHOLD, likeness, near_duplicates
from tests.rows import asked, row

ASKED = "Enséñame los últimos 12 commits de «web/rubo» del servidor de producción"


def rows(*texts: str, **arguments) -> list[Row]:
    return [row(asked(text, **arguments), id=str(number)) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    "again",
    [
        ASKED,
        ASKED.upper().replace("WEB/RUBO", "web/rubo"),
        f"Oye, {ASKED}",
        f"{ASKED}, gracias",
        ASKED.replace("Enséñame", "Muéstrame"),
    ],
)
def test_nearly_the_same_words_are_a_duplicate_and_the_first_stays(again):
    assert near_duplicates(rows(ASKED, again)) == {"1": "0"}


@pytest.mark.parametrize(
    "other",
    [
        ASKED.replace("web/rubo", "api/dema"),
        ASKED.replace("12", "9"),
        "¿Qué commits hubo últimamente? Dame 12 del repositorio «web/rubo», haz el favor",
    ],
)
def test_other_values_or_other_words_are_another_example(other):
    assert near_duplicates(rows(ASKED, other)) == {}


def test_the_same_words_with_another_call_are_another_example():
    twins = [row(asked(ASKED), id="0"), row(asked(ASKED, max_count=3), id="1")]
    assert near_duplicates(twins) == {}
    assert likeness(*twins) == 1


def test_buckets_and_skills_are_apart():
    assert near_duplicates([row(asked(ASKED), id="0"), row(asked(ASKED), id="1", bucket="errors")]) == {}
    assert near_duplicates([row(asked(ASKED), id="0"), row(asked(ASKED), id="1", skill="informe")]) == {}


def test_prompts_of_replay_may_be_alike():
    written = [replace(one, bucket="replay") for one in rows(ASKED, f"{ASKED}, gracias")]
    assert near_duplicates(written) == {}


def test_small_talk_may_repeat():
    talk = [chat.user("Hola, buenos días"), chat.say("¡Hola!", think="Saludo.")]
    assert near_duplicates([row(talk, id="0"), row(talk, id="1")]) == {}


def test_chains_of_duplicates_all_point_at_a_row_that_stays_and_minhash_misses_none():
    rng = random.Random(5)
    words = "rama commit cambios servidor estado ficheros lista resumen enviar fecha autor nuevo".split()
    texts = []
    for _ in range(60):
        base = [rng.choice(words) for _ in range(20)]
        texts += [" ".join(base), " ".join([*base, "gracias"])]
    many = [row([chat.user(text), chat.say("ok", think="t")], id=str(i)) for i, text in enumerate(texts)]
    found = near_duplicates(many)
    assert found == {str(i): str(i - 1) for i in range(1, 120, 2)}
    assert all(likeness(many[int(a)], many[int(b)]) >= THRESHOLD for a, b in found.items())
    assert not set(found.values()) & set(found)
