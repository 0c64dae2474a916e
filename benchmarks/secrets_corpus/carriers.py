"""Where a value is met: a line of some language, and the document around that line.

Every function returns marked text (`templates.py`). What surrounds a value is harmless by construction, so a
finding there is a false one.
"""

import re
from collections.abc import Callable
from random import Random

from benchmarks.secrets_corpus.makers import MAKERS
from benchmarks.secrets_corpus.templates import Kind, fill, quoted, secret

Line = Callable[[Random, str, str], str]  # (source of chance, name in upper case, marked value) -> line

PROSE = (
    "La clave de {label} es @, cámbiala cuando puedas.",
    "El token de {label} que usamos en producción: @",
    "Pásale a Marta el token @ de {label}.",
    "Configura {key} con el valor @ y reinicia.",
    "He puesto {key}=@ en el servidor.",
    "La credencial de {label} sigue siendo @",
    "The {label} API key is @.",
    "Use this {label} token: @",
)
NEUTRAL_PROSE = ("El valor de {key} es @.", "{key}: @", "Here {key} is @.")
SENTENCES = (
    "Revisa los cambios antes de publicar y deja una nota en la página del proyecto.",
    "El servicio se reinicia solo; si no responde en un minuto, mira el registro.",
    "Ayer cerramos cuatro incidencias y quedan dos por asignar.",
    "Recuerda que la rama se crea desde main.",
    "The build took nine minutes, mostly in the tests.",
    "Las facturas de marzo están en la carpeta compartida.",
    "No hace falta tocar la configuración del panel.",
    "Please keep the change small and explain why it is needed.",
)
CODE = {
    "shell": ("set -euo pipefail", "cd /srv/panel", "docker compose up -d", "npm ci --silent", "echo listo"),
    "yaml": ("version: 2", "replicas: 3", "restart: unless-stopped", "timeout: 30", "log_level: info"),
    "python": ("import os", "import json", "timeout = 30", "retries = 3", "rows = sorted(rows, key=len)"),
    "javascript": (
        "import fs from 'node:fs'",
        "const retries = 3;",
        "export default app;",
        "app.listen(8080);",
    ),
    "dotenv": ("NODE_ENV=production", "PORT=8080", "LOG_LEVEL=info", "TZ=Europe/Madrid", "FEATURE_X=true"),
    "json": (),
}


def snake(key: str) -> str:
    return key.lower()


def camel(key: str) -> str:
    first, *rest = key.lower().split("_")
    return first + "".join(word.capitalize() for word in rest)


def _shell(rng: Random, key: str, value: str) -> str:
    forms = [f'export {key}="{value}"', f"export {key}={value}", f"{key}='{value}' ./deploy.sh"]
    forms += [f'docker run -e {key}="{value}" app', f'gh variable set {key} --body "{value}"']
    return rng.choice([*forms, f"kubectl create configmap app --from-literal={key}='{value}'"])


def _dotenv(rng: Random, key: str, value: str) -> str:
    return rng.choice([f"{key}={value}", f'{key}="{value}"', f"{snake(key)} = {value}"])


def _yaml(rng: Random, key: str, value: str) -> str:
    forms = [f"{snake(key)}: {value}", f'{snake(key)}: "{value}"', f"environment:\n  {key}: '{value}'"]
    return rng.choice(
        [*forms, f'env:\n- name: {key}\n  value: "{value}"', f"environment:\n  - {key}={value}"]
    )


def _json(rng: Random, key: str, value: str) -> str:
    inner = f"{quoted(rng.choice([key, camel(key), snake(key)]))}: {quoted(value)}"
    server = f'{{"command": "panel-mcp", "args": ["--stdio"], "env": {{{inner}}}}}'
    forms = [f'{{"mcpServers": {{"panel": {server}}}}}', f'{{"name": "panel", {inner}, "enabled": true}}']
    return rng.choice([*forms, f'{{\n  "debug": false,\n  {inner},\n  "timeout": 30\n}}'])


def _python(rng: Random, key: str, value: str) -> str:
    literal = quoted(value)
    forms = [f"{key} = {literal}", f"os.environ[{quoted(key)}] = {literal}", f"{snake(key)}: str = {literal}"]
    forms += [
        f"client = Client({snake(key)}={literal}, timeout=30)",
        f"config = {{{quoted(snake(key))}: {literal}}}",
    ]
    return rng.choice(forms)


def _javascript(rng: Random, key: str, value: str) -> str:
    literal = quoted(value)
    forms = [
        f"const {camel(key)} = {literal};",
        f"process.env.{key} = {literal};",
        f"  {camel(key)}: {literal},",
    ]
    return rng.choice([*forms, f"const app = init({{ {camel(key)}: {literal} }});"])


def _markdown(rng: Random, key: str, value: str) -> str:
    forms = [f"- `{key}`: `{value}`", f"| {key} | `{value}` | producción |", f"**{key}**: {value}"]
    return rng.choice([*forms, f"```bash\nexport {key}={value}\n```", f"1. Añade `{key}={value}` al `.env`."])


LINES: dict[str, Line] = {
    "shell": _shell,
    "dotenv": _dotenv,
    "yaml": _yaml,
    "json": _json,
    "python": _python,
    "javascript": _javascript,
    "markdown": _markdown,
}


def _surrounded(rng: Random, language: str, line: str) -> str:
    stock = CODE.get(language, SENTENCES)
    before, after = (rng.sample(stock, min(rng.randint(0, 2), len(stock))) for _ in range(2))
    gap = "\n\n" if stock is SENTENCES and not line.startswith("|") else "\n"
    return gap.join([*before, line, *after]) + "\n"


def _sentence(rng: Random, kind: Kind, key: str, value: str, *, credential: bool) -> str:
    template = rng.choice(kind.prose or (PROSE if credential else NEUTRAL_PROSE))
    label = kind.family.replace("_", " ").title()
    text = fill(template, rng, MAKERS).replace("{label}", label).replace("{key}", key)
    return text.replace("@", value, 1) if re.search(r"(?<!\w)@(?!\w)", text) else text


def _uuid(rng: Random) -> str:
    return MAKERS["uuid"](rng, "")


def _event(rng: Random, role: str, content: str) -> str:
    """One line of a Claude Code transcript (`~/.claude/projects/*/*.jsonl`)."""
    return (
        f'{{"parentUuid":"{_uuid(rng)}","isSidechain":false,"userType":"external","cwd":"/srv/panel",'
        f'"sessionId":"{_uuid(rng)}","version":"2.1.230","gitBranch":"main","type":"{role}","message":'
        f'{{"role":"{role}","content":{content}}},"uuid":"{_uuid(rng)}","timestamp":"2026-03-12T10:15:32.118Z"}}\n'
    )


def _tool_id(rng: Random) -> str:
    return fill("toolu_01{an:22}", rng, {})


def _tool_result(rng: Random, text: str) -> str:
    block = (
        f'{{"type":"tool_result","tool_use_id":"{_tool_id(rng)}","content":{quoted(text)},"is_error":false}}'
    )
    return _event(rng, "user", f"[{block}]")


def _tool_call(rng: Random, text: str) -> str:
    block = (
        f'[{{"type":"tool_use","id":"{_tool_id(rng)}","name":"Bash","input":{{"command":{quoted(text)}}}}}]'
    )
    return _event(rng, "assistant", block)


def _thinking(rng: Random, text: str) -> str:
    thought = f"El usuario quiere que lo deje configurado. Tengo esto: {text.strip()} Lo aplico."
    return _event(rng, "assistant", f'[{{"type":"thinking","thinking":{quoted(thought)}}}]')


def _chat_row(rng: Random, text: str) -> str:
    answer = rng.choice(["Hecho, ya está configurado.", "De acuerdo, lo reviso ahora.", "Listo. ¿Algo más?"])
    return (
        f'{{"messages": [{{"role": "user", "content": {quoted(text.strip())}}}, '
        f'{{"role": "assistant", "content": {quoted(answer)}}}]}}\n'
    )


def _chat_text(rng: Random, text: str) -> str:
    return f"Usuario: {rng.choice(SENTENCES)}\nAsistente: {text.strip()}\nUsuario: perfecto, gracias.\n"


def _fence(rng: Random, text: str) -> str:
    return f"## Configuración\n\n{rng.choice(SENTENCES)}\n\n```\n{text.rstrip()}\n```\n"


DOCUMENTS: dict[str, Callable[[Random, str], str]] = {
    "file": lambda _, text: text,
    "markdown": _fence,
    "prose": lambda rng, text: _surrounded(rng, "prose", text.rstrip("\n")),
    "transcript_result": _tool_result,
    "transcript_call": _tool_call,
    "transcript_thinking": _thinking,
    "chat": _chat_row,
    "chat_text": _chat_text,
}
CARRIERS = (
    *LINES,
    "prose",
    "shell/transcript_result",
    "dotenv/chat",
    "prose/chat_text",
    "yaml/transcript_result",
)
CARRIERS += ("prose", "shell/transcript_call", "python/markdown", "prose/transcript_thinking", "prose/chat")


def carry(rng: Random, kind: Kind, carrier: str, *, credential: bool) -> str:
    """Marked text that carries one value of `kind` (the secret, when it is a `credential`).

    `carrier` is a language, or a language and the document around it: `shell/transcript_call`. Kinds that
    have no name for their value keep to their own snippets, in the document of the carrier.
    """
    language, _, document = carrier.partition("/")
    if kind.contexts and (not kind.values or rng.random() < 0.3):
        snippet = fill(rng.choice(kind.contexts), rng, MAKERS)
        return DOCUMENTS[document or (language if language in DOCUMENTS else "file")](rng, snippet)
    value = fill(rng.choice(kind.values), rng, MAKERS)
    value = secret(value) if credential else value
    key = rng.choice(kind.keys.split())
    if language == "prose":
        sentence = _sentence(rng, kind, key, value, credential=credential)
        return DOCUMENTS[document or "prose"](rng, sentence)
    text = _surrounded(rng, language, LINES[language](rng, key, value))
    return DOCUMENTS[document or "file"](rng, text)
