"""A stand-in for vLLM over a stand-in checkpoint: `served_stand_in.py <checkpoint> <port> <pid file>`.

It names its model after the tensors' bytes and behaves as `stand_in` in config.json says (`MOODS`). It runs
by `python -I -S` and takes HTTP apart by hand: started a thousand times, the standard library's is too slow.
"""

import json
import os
import signal
import socket
import sys
import time
from typing import Any

MOODS = {
    "": "healthy",
    "dead": "ends at once",
    "silent": "never listens",
    "empty": "answers without a word",
    "bangs": "one character without end",
    "broken": "unreadable characters",
    "crash": "lists its model, and ends at the first question",
    "unparsed": "leaves the tool call in the text",
    "no parser": "refuses tools, as a server without a parser does",
    "other tool": "calls another tool",
    "no arguments": "calls the tool without what it requires",
    "half arguments": "sends arguments that are no JSON",
    "no call": "talks instead of calling",
    "no drafts": "never drafts a token",
    "few kept": "drafts, and nine of ten tokens are not kept",
    "slow": "healthy, a tenth as fast",
}
ANSWERS = {"empty": "", "bangs": "!" * 128, "broken": "\ufffd" * 40}
DRAFTED = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


def chat(body: dict[str, Any], mood: str) -> tuple[int, dict[str, Any]]:
    """Status and body of a chat completion."""
    time.sleep(0.05 if mood == "slow" else 0.002)
    if mood == "no parser" and "tools" in body:
        return 400, {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice'}}
    message: dict[str, Any] = {"role": "assistant", "reasoning": "I know this.", "content": "¡Adiós!"}
    if mood in ANSWERS:
        message |= {"reasoning": "", "content": ANSWERS[mood]}
    elif "alarm" in body["messages"][-1]["content"] and mood != "no call":
        name = "mcp__other__tool" if mood == "other tool" else body["tools"][0]["function"]["name"]
        arguments = {"no arguments": "{}", "half arguments": '{"time": '}.get(mood, '{"time": "02:48"}')
        call = {"id": "call_0", "type": "function", "function": {"name": name, "arguments": arguments}}
        message["content"] = "<tool_call>\n<function=x>" if mood == "unparsed" else None
        message["tool_calls"] = [] if mood == "unparsed" else [call]
    return 200, {
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"completion_tokens": 20},
    }


def counters(asked: int, mood: str) -> str:
    """Prometheus counters of speculative decoding after so many questions, ten drafts each."""
    made = {"no drafts": 0}.get(mood, 10 * asked)
    values = dict.fromkeys(DRAFTED, made)
    if mood == "few kept":
        values["num_accepted_tokens"] = asked
    return "".join(f'vllm:spec_decode_{name}_total{{engine="0"}} {n}.0\n' for name, n in values.items())


def serve(model: str, mood: str, listener: socket.socket) -> None:
    """Answer one request after the other, for ever."""
    asked = 0
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            method, path, _ = stream.readline().decode().split()
            size = 0
            while (header := stream.readline().strip()) != b"":
                name, _, value = header.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
            sent = stream.read(size)
            if mood == "crash" and method == "POST":
                sys.exit(1)
            status, body = 200, json.dumps({"data": [{"id": model}]}).encode()
            if method == "POST":
                asked += 1
                status, answer = chat(json.loads(sent), mood)
                body = json.dumps(answer).encode()
            elif path not in ("/v1/models", "/metrics"):
                status = 404
            elif path == "/metrics":
                body = counters(asked, mood).encode()
            head = f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            stream.write(head.encode() + body)


def main(checkpoint: str, port: str, pid_file: str) -> None:
    """Load, then serve until SIGTERM; the file with our process id, which the shell writes, goes with us."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while not os.path.exists(pid_file):
        time.sleep(0.001)
    try:
        with open(f"{checkpoint}/config.json", encoding="utf-8") as file:
            mood = json.load(file).get("stand_in", "")
        with open(f"{checkpoint}/model.safetensors", "rb") as file:
            file.seek(-1, os.SEEK_END)
            model = f"checkpoint {file.read()[0]}"
        if mood == "dead":
            return
        if mood == "silent":
            time.sleep(3600)
        with socket.create_server(("127.0.0.1", int(port))) as listener:
            serve(model, mood, listener)
    finally:
        os.unlink(pid_file)


if __name__ == "__main__":
    main(*sys.argv[1:])
