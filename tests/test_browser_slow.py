"""The pages in a real browser: nothing in the console, nothing asked for, readable on a phone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from eval import report
from tests import test_page
from tests.browser import Browser, browser
from tests.evaluated import OUT, Run

pytestmark = pytest.mark.slow

PHONE, DESK = 390, 1280
SMALLEST = 12
PAGE = (
    "<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' "
    "content='width=device-width, initial-scale=1'><title>t</title><body style='margin: 0'><p>ñ</p>{}</html>"
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture(params=["report", "report before NVFP4", "dataset"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of the project's."""
    monkeypatch.chdir(tmp_path)
    if request.param == "dataset":
        Path("dataset.html").write_text(test_page.rendered(), encoding="utf-8")
        return Path("dataset.html")
    run = Run("Veamos. " + "unapalabralarguísima" * 20)
    if request.param == "report":
        run.quantize()
    report.main(list(run.words))
    return OUT / "report.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_page_is_quiet_asks_for_nothing_and_can_be_read(
    chromium: Browser, path: Path, width: int, dark: bool
):
    found = chromium.open(path, width, dark=dark)
    assert found.errors == []
    assert found.requests == []
    assert found.width == width
    assert found.smallest >= SMALLEST, found.smallest_text


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("<script>console.error('loud')</script>", "loud"),
        ("<script>throw new Error('thrown')</script>", "thrown"),
        ("<script>setTimeout(() => { later(); }, 100)</script>", "later"),
    ],
)
def test_an_error_of_a_page_is_seen(chromium: Browser, tmp_path: Path, fault: str, seen: str):
    (error,) = opened(chromium, tmp_path, fault).errors
    assert seen in error


@pytest.mark.parametrize(
    "fault",
    [
        "<img src='http://127.0.0.1:9/x' alt=''>",
        "<link rel='stylesheet' href='http://127.0.0.1:9/x'>",
        "<script>fetch('http://127.0.0.1:9/x').catch(() => {})</script>",
        "<p style='background: url(http://127.0.0.1:9/x)'>t</p>",
    ],
)
def test_what_a_page_asks_for_is_seen(chromium: Browser, tmp_path: Path, fault: str):
    assert opened(chromium, tmp_path, fault).requests == ["http://127.0.0.1:9/x"]


def test_a_page_that_is_too_wide_is_seen(chromium: Browser, tmp_path: Path):
    assert opened(chromium, tmp_path, "").width == PHONE
    wide = "<table style='width: 900px'><tr><td>t</td></tr></table>"
    assert opened(chromium, tmp_path, wide).width == 900


@pytest.mark.parametrize(
    "fault",
    [
        "<p style='font-size: 9px'>small</p>",
        "<svg viewBox='0 0 780 10'><text y='9' style='font-size: 18px'>small</text></svg>",
        "<details><summary>s</summary><p style='font-size: 9px'>small</p></details>",
    ],
)
def test_text_that_is_too_small_is_seen(chromium: Browser, tmp_path: Path, fault: str):
    found = opened(chromium, tmp_path, fault)
    assert round(found.smallest) == 9
    assert found.smallest_text == "small"


def opened(chromium: Browser, tmp_path: Path, fault: str):
    """A sound page with a fault in it, as the browser found it."""
    (tmp_path / "page.html").write_text(PAGE.format(fault), encoding="utf-8")
    return chromium.open(tmp_path / "page.html", PHONE)
