"""Whether a server's answers are sense, and what a profile may ask of it."""

import re
from dataclasses import replace

import pytest
from deploying import StandIn, quantize, run_deploy
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import UserError
from core.profile import Health
from core.profiles import qwen3_6_35b_a3b, tiny
from quant.deploying import health, nonsense
from quant.deploying.health import Unhealthy
from tests import model_server

PROSE = (
    "París es la capital de Francia desde el siglo X. La ciudad está en el norte, a orillas del Sena;"
    " tiene algo más de dos millones de habitantes, y doce millones su área urbana.\n\n| año | habitantes |\n"
    "|---|---|\n| 1900 | 2 714 068 |\n| 2020 | 2 145 906 |\n"
)
ASKED = tiny.PROFILE.health


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "¡Adiós!",
        "…",
        "No lo sé...",
        "ja ja ja ja ja",
        "北京是中国的首都。",
        "👍🏽",
        PROSE,
        "-" * 10,
        PROSE + "Fin.",
    ],
)
def test_what_people_write_is_no_nonsense(text: str) -> None:
    assert nonsense.fault_in(text) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("!" * 64, "it repeats '!' without end"),
        (PROSE + "the the " * 20, "it repeats "),
        (PROSE + "Hola, ¿en qué te ayudo? " * 9 + "Hola, ¿en", "it repeats "),
        ("\n" + "\u0627\u0644" * 400, "it repeats "),
        ("\ufffd\ufffdab\x00", "3 of its 5 characters are unreadable"),
        ("a\ud83d", "it is not valid Unicode"),
    ],
)
def test_what_broken_weights_write_is_nonsense(text: str, fault: str) -> None:
    assert fault in nonsense.fault_in(text)


@given(
    st.text(alphabet=st.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=60),
    st.integers(24, 90),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_whatever_is_repeated_without_end_is_found(unit: str, times: int) -> None:
    assert nonsense.fault_in(PROSE + unit * times)


def test_a_known_answer_must_be_in_it(stand_in: StandIn) -> None:
    assert health.check(stand_in.url, replace(ASKED, answer="ADIÓS"), "test").drafts == 30
    with pytest.raises(Unhealthy, match=r"asked 'Adiós' the server answers '¡Adiós!': no '42' in it"):
        health.check(stand_in.url, replace(ASKED, answer="42"), "test")


def test_drafts_must_be_kept_as_often_as_the_profile_wants(stand_in: StandIn) -> None:
    quantize(2, mood="few kept")
    assert run_deploy(*stand_in.words) == 0
    assert health.check(stand_in.url, replace(ASKED, acceptance=0.1), "test").acceptance == 0.1
    with pytest.raises(Unhealthy, match="only 10% of the drafted tokens are kept, expected 40% or more"):
        health.check(stand_in.url, replace(ASKED, acceptance=0.4), "test")
    assert health.check(stand_in.url, replace(ASKED, acceptance=None), "test").drafts is None


def test_a_server_that_wants_a_token_gets_it_or_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with model_server.serve(model_server.echo, token="secret") as server:
        with pytest.raises(UserError, match=r"refused us with HTTP 401; export ENDPOINT_TOKEN=<its key>"):
            health.require_address(server.url)
        monkeypatch.setenv(health.TOKEN, "secret")
        health.require_address(server.url)


def test_a_server_that_is_down_before_a_deploy_is_no_mistake() -> None:
    health.require_address("http://127.0.0.1:9/v1")


@pytest.mark.parametrize("asked", [Health(), ASKED, qwen3_6_35b_a3b.PROFILE.health])
def test_every_profile_asks_what_can_be_answered(asked: Health) -> None:
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(asked.tool["function"]["parameters"])
    assert asked.request != asked.question and asked.tokens > 0 and asked.minutes > 0
    assert re.fullmatch(r"[a-zA-Z0-9_]{1,64}", asked.tool["function"]["name"])
