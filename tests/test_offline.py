"""Nothing talks to anything but what the settings name: no telemetry, and training needs no network."""

import os
import subprocess
import sys

import pytest

from core import offline
from tests import no_network

ASK = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=5)"  # TEST-NET-1, RFC 5737


def test_the_chain_up_to_the_merge_asks_for_no_network(project):
    asked = project / "network-asked"
    assert not asked.exists(), asked.read_text()
    assert (project / "out/mini/adapter/manifest.json").exists()


def test_what_would_have_been_seen(tmp_path):
    """The planted fault: a process that asks is refused, and noted."""
    asked = tmp_path / "asked"
    done = subprocess.run(
        [*no_network.prefix(), sys.executable, "-c", ASK],
        env=no_network.environment(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no network in this test" in done.stderr
    assert "192.0.2.1" in asked.read_text()


@pytest.mark.skipif(not no_network.prefix(), reason="no network namespaces here")
def test_the_cut_holds_without_the_guard():
    done = subprocess.run(
        [*no_network.prefix(), sys.executable, "-c", ASK], capture_output=True, text=True, check=False
    )
    assert "Network is unreachable" in done.stderr


def test_telemetry_is_off_in_every_stage_unless_the_user_says_otherwise(monkeypatch):
    for name in offline.SWITCHES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DO_NOT_TRACK", "0")
    code = (
        "import os, json; from core import errors;"
        "errors.run(lambda words: print(json.dumps({n: os.environ.get(n) for n in words})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *offline.SWITCHES], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == str(offline.SWITCHES | {"DO_NOT_TRACK": "0"}).replace("'", '"')
