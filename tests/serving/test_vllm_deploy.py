"""make deploy and make rollback before a real server: vLLM on the CPU serves the merged tiny checkpoint.

The merged BF16 checkpoint stands in the NVFP4 one's place, since vLLM cannot generate in NVFP4 on a CPU.
"""

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from core import artifacts, chat, verdicts
from tests import deltas, deploying
from tests.conftest import ROOT, copy_project, run_make
from tests.serving import server

pytestmark = [pytest.mark.slow, pytest.mark.serve]

SERVED = Path("deployed/tiny")
QUESTIONS = 3


@pytest.fixture(scope="module")
def place(base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the project in which a run was merged and judged; production is the base."""
    project = copy_project(tmp_path_factory.mktemp("served"))
    (project / "tests").symlink_to(ROOT / "tests")
    profile = project / "core/profiles/tiny.py"  # three imports of vLLM on a busy machine
    profile.write_text(profile.read_text().replace("minutes=5,", "minutes=20,"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        shutil.copytree(base_dir, deltas.BASE)
        put(base_dir, deploying.PRODUCTION)
        deltas.adapt(size=0.01)
        put(deltas.MERGED, deploying.NVFP4)
        deploying.judge(verdicts.IMPROVES)
        yield project
        server.stop(project / "vllm")


def put(checkpoint: Path, at: Path) -> None:
    """A checkpoint's payload as an artefact of its own."""
    with deploying.artifact(at) as draft:
        for name, file in artifacts.payload(checkpoint).items():
            shutil.copy2(file, draft.path / name)


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def run(target: str, place: Path, port: int) -> str:
    """`make <target>` with the real server behind STOP_CMD, START_CMD and SERVER; what it printed.

    For deploy the chain before it is left out: its results lie there.
    """
    command = f"{sys.executable} -m tests.serving.server"
    done = run_make(
        place, "--old-file=eval-nvfp4", target, "PROFILE=tiny", "RUN=one", "MODELS_DIR=models",
        f"DEPLOY_DIR={SERVED}", f"SERVER=http://127.0.0.1:{port}/v1", f"STOP_CMD={command} stop vllm",
        f"START_CMD={command} start {SERVED} {port} vllm",
    )  # fmt: skip
    log = place / "vllm" / server.LOG
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text()[-3000:] if log.exists() else "")
    return done.stdout


def rows() -> list[chat.Row]:
    """Questions that the base answers with a call, as it was made to."""
    wanted = [row for row in chat.read_rows(ROOT / "examples/replay.jsonl") if calls(row)]
    return [row for row in wanted if row.messages[0]["role"] == "user"][:QUESTIONS]


def calls(row: chat.Row) -> list[tuple[str, dict[str, Any]]]:
    made = next(m for m in row.messages if m["role"] == "assistant").get("tool_calls", [])
    return [(one["function"]["name"], one["function"]["arguments"]) for one in made]


def answer(row: chat.Row, port: int, *, stream: bool) -> list[tuple[str, dict[str, Any]]]:
    """The calls in the server's answer, put together from its chunks where it streams."""
    url = f"http://127.0.0.1:{port}/v1"
    model = httpx.get(f"{url}/models").json()["data"][0]["id"]
    body = {
        "model": model, "messages": row.messages[:1], "tools": row.tools, "temperature": 0,
        "max_tokens": 160, "stream": stream,
    }  # fmt: skip
    response = httpx.post(f"{url}/chat/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    if not stream:
        message = response.json()["choices"][0]["message"]
        assert message["reasoning"], "the reasoning parser found none"
        made = message["tool_calls"]
        return [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in made]
    found: dict[int, list[str]] = {}
    for line in response.text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                for one in choice["delta"].get("tool_calls") or []:
                    part = found.setdefault(one["index"], ["", ""])
                    part[0] += one["function"].get("name") or ""
                    part[1] += one["function"].get("arguments") or ""
    return [(name, json.loads(arguments)) for name, arguments in found.values()]


def check(place: Path, port: int, checkpoint: Path) -> None:
    """What is served is this checkpoint, and it calls tools, streaming or not."""
    assert deploying.payload(place / SERVED) == deploying.payload(place / checkpoint)
    for row in rows():
        assert answer(row, port, stream=False) == answer(row, port, stream=True) == calls(row)


def test_deploy_and_rollback_are_healthy_on_a_real_server(place: Path, port: int) -> None:
    said = run("deploy", place, port)
    assert "healthy: ready after" in said and "chat and tool call right" in said and "drafts" in said, said
    check(place, port, deploying.NVFP4)
    said = run("rollback", place, port)
    assert "healthy: ready after" in said and "drafts" in said, said
    check(place, port, deploying.PRODUCTION)
