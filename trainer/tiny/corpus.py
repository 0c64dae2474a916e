"""What the tiny base learns from: small talk, calls of everyday tools and of invented ones, routines.

None of it shows the user's tools or skills. `python -m trainer.tiny.corpus` writes the prompts of the
replay bucket (`examples/replay.jsonl`) from seeds that pre-training does not use.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import chat, phrases
from core.chat import Row, Tool

WORDS = tuple(dict.fromkeys((Path(__file__).parent / "words.txt").read_text(encoding="utf-8").split()))
"""Common words of both languages and of the trade: what any base has seen."""
REPLAY_FILE = Path("examples/replay.jsonl")
REPLAY_SEED, REPLAY_ROWS = 7_000_000, 320

ONSETS = ("b c d f g k l m n p r s t v z br tr pl gr ch").split()
VOWELS = ["a", "e", "i", "o", "u"]
CODAS = ["", "", "", "n", "r", "s", "l"]
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


def word(rng: random.Random, syllables: int | None = None) -> str:
    """A pronounceable invented word."""
    count = syllables or rng.choice([1, 2, 2, 2, 3])
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(count))


def words(rng: random.Random, low: int, high: int) -> str:
    """Some common words in a row."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(low, high)))


VALUES: dict[str, Callable[[random.Random], Any]] = {
    "word": word,
    "name": lambda rng: word(rng).capitalize(),
    "text": lambda rng: words(rng, 2, 4) if rng.random() < 0.7 else f"{word(rng)} {word(rng)}",
    "path": lambda rng: f"{word(rng)}/{word(rng)}",
    "file": lambda rng: f"{word(rng)}.{rng.choice(['png', 'pdf', 'txt', 'md', 'py'])}",
    "place": lambda rng: f"{word(rng).capitalize()}/{word(rng).capitalize()}",
    "code": lambda rng: "".join(rng.choice(LETTERS) for _ in range(2)) + f"-{rng.randint(100, 999)}",
    "hex": lambda rng: "".join(rng.choice("0123456789abcdef") for _ in range(6)),
    "date": lambda rng: f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
    "time": lambda rng: f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}",
    "int": lambda rng: rng.choice([rng.randint(1, 9), rng.randint(10, 99), rng.randint(100, 999)]),
    "list": lambda rng: [VALUES["file"](rng) for _ in range(rng.choice([1, 1, 2]))],
}
QUOTES = ('"{}"', "'{}'", "«{}»")


def quote(rng: random.Random, value: Any, spanish: bool) -> str:
    """A value as a user types it: numbers bare, texts in quotes, lists joined."""
    if isinstance(value, int):
        return str(value)
    mark = rng.choice(QUOTES)
    if isinstance(value, list):
        return (" y " if spanish else " and ").join(mark.format(item) for item in value)
    return mark.format(value)


@dataclass(frozen=True)
class Known:
    """A tool of the corpus: parameters as (name, kind of value), wordings as (Spanish?, text)."""

    name: str
    description: str
    parameters: tuple[tuple[str, str], ...]
    wordings: tuple[tuple[bool, str], ...]

    def schema(self, rng: random.Random) -> Tool:
        """The tool with its JSON schema; decorated at random with what real servers add."""
        properties: dict[str, Any] = {}
        for name, kind in self.parameters:
            properties[name] = _property(kind)
            if rng.random() < 0.2 and kind not in ("int", "list"):
                described = words(rng, 2, 12).capitalize()
                properties[name] = {"description": described, "type": "string"}
        if rng.random() < 0.2:
            extra = rng.choice(PARAMETERS)
            optional = {"default": rng.randint(1, 20), "type": "integer"}
            nullable = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
            if rng.random() < 0.4:
                nullable["description"] = words(rng, 4, 20).capitalize()
            properties.setdefault(extra, optional if rng.random() < 0.5 else nullable)
        required = [name for name, _ in self.parameters]
        parameters = {"properties": properties, "required": required, "type": "object"}
        return chat.tool("mcp__" + self.name, self.description, parameters)

    def ask(self, rng: random.Random) -> tuple[str, dict[str, Any], bool]:
        """A request, the arguments that it asks for, and whether it is in Spanish."""
        spanish, wording = rng.choice(self.wordings)
        arguments = {name: VALUES[kind](rng) for name, kind in self.parameters}
        shown = {name: quote(rng, value, spanish) for name, value in arguments.items()}
        return phrases.wrapped(wording.format(**shown), spanish, rng), arguments, spanish


def _property(kind: str) -> dict[str, Any]:
    if kind == "int":
        return {"type": "integer"}
    if kind == "list":
        return {"items": {"type": "string"}, "minItems": 1, "type": "array"}
    return {"type": "string"}


def _known(name: str, description: str, parameters: str, spanish: str, english: str) -> Known:
    pairs = tuple((p.split(":")[0], p.split(":")[1]) for p in parameters.split())
    wordings = tuple((True, w) for w in spanish.split(" | ")) + tuple(
        (False, w) for w in english.split(" | ")
    )
    return Known(name, description, pairs, wordings)


KNOWN = (
    _known("meteo__get_weather", "Tells the weather of a city now and tomorrow", "city:name",
           "¿Qué tiempo hace en {city}? | Dime el tiempo en {city} | ¿Lloverá en {city}?",
           "What is the weather in {city}? | Tell me the weather for {city} | Will it rain in {city}?"),
    _known("office__book_room", "Books a meeting room for a number of people", "room:name people:int",
           "Reserva la sala {room} para {people} personas | Necesito la sala {room} para {people}",
           "Book room {room} for {people} people | I need the room {room} for {people}"),
    _known("mail__send_mail", "Sends a mail with a subject to a person", "to:word subject:text",
           "Envía un correo a {to} sobre {subject} | Escribe a {to} un correo con asunto {subject}",
           "Send a mail to {to} about {subject} | Write {to} a mail on {subject}"),
    _known("shop__track_order", "Shows where an order is and when it arrives", "order:code",
           "¿Dónde está el pedido {order}? | Sigue el pedido {order}",
           "Where is order {order}? | Track my order {order}"),
    _known("notes__add_note", "Saves a short note with its text in the notebook", "text:text",
           "Guarda la nota {text} | Apunta {text}", "Save the note {text} | Note down {text}"),
    _known("clock__set_alarm", "Sets an alarm at the given time of the day", "time:time",
           "Despiértame a las {time} | Pon una alarma a las {time}",
           "Wake me at {time} | Set an alarm at {time}"),
    _known("bank__buy_stock", "Buys an amount of shares of a company", "symbol:word amount:int",
           "Compra {amount} acciones de {symbol} | Quiero {amount} acciones de {symbol}",
           "Buy {amount} shares of {symbol} | Get me {amount} of {symbol}"),
    _known("files__find_file", "Searches the files whose name contains a text", "query:file limit:int",
           "Busca archivos {query}, máximo {limit} | Encuentra {query}, límite {limit}",
           "Find files named {query}, at most {limit} | Search {query}, limit {limit}"),
    _known("taxi__call_taxi", "Calls a taxi to an address at a time", "address:path time:time",
           "Pide un taxi a {address} a las {time} | Un taxi para {address} a las {time}",
           "Get a taxi to {address} at {time} | Taxi for {address} at {time} please"),
    _known("desk__open_ticket", "Opens a support ticket with a title and its owner", "title:text owner:name",
           "Abre un ticket {title} para {owner} | Crea el ticket {title} con dueño {owner}",
           "Open ticket {title} for {owner} | File a ticket {title}, owner {owner}"),
    _known("albums__share_photos", "Shares photos from an album with a person", "photos:list person:name",
           "Comparte {photos} con {person} | Enseña a {person} las fotos {photos}",
           "Share {photos} with {person} | Let {person} see {photos}"),
    _known("travel__find_train", "Finds trains from one station to another on a date",
           "origin:name target:name date:date",
           "Busca un tren de {origin} a {target} el {date} | Tren de {origin} hasta {target} para el {date}",
           "Find a train from {origin} to {target} on {date} | Train {origin} to {target}, day {date}"),
)  # fmt: skip

VERBS = (
    "make list drop move copy read sync pack push pull draw scan lock fetch merge start stop check clean "
    "print get set add show create convert change switch record reset log view update search open close"
).split()
NOUNS = (
    "user team task disk page shop song game plan lamp door cart film node port rule form menu pool ring "
    "time zone branch file work tree area message history state difference version content item list "
    "source"
).split()
PARAMETERS = (
    "name id label kind size level zone group key value tag host count mode target source unit user team "
    "note path file files message branch_name base_name repo_name max_size start_date end_date user_id "
    "file_path"
).split()


def invented(rng: random.Random, server: str = "") -> Known:
    """A tool that exists only in this one conversation: the model must read its schema to call it.

    The request names it by the words of its name, or by some of its description.
    """
    server = server or rng.choice([word(rng, 1), word(rng, 2), rng.choice(NOUNS), rng.choice(WORDS).lower()])
    parts = rng.choice(
        [
            [rng.choice(VERBS), rng.choice(NOUNS)],
            [server, rng.choice(VERBS), rng.choice(NOUNS)],
            [rng.choice(VERBS), word(rng, 2)],
            [server, rng.choice(VERBS)],
            [word(rng, 2), word(rng, 1)],
            [rng.choice(WORDS).lower(), rng.choice(WORDS).lower()],
        ]
    )
    kinds = [k for k in VALUES if k != "list"]
    parameters = tuple(
        (name if rng.random() < 0.75 else word(rng, 2), rng.choice([*kinds, "word", "path", "list"]))
        for name in rng.sample(PARAMETERS, rng.choice([1, 1, 2, 2, 3]))
    )
    prose = words(rng, 3, 9).capitalize()
    spanish = rng.random() < 0.5
    bare = len(parameters) == 1 and rng.random() < 0.4
    joined = (" y " if spanish else " and ").join(
        f"{{{name}}}" if bare else f"{name} {{{name}}}" for name, _ in parameters
    )
    verb = rng.choice(SPANISH_VERBS if spanish else ENGLISH_VERBS)
    described = prose.lower().split()
    start = rng.randrange(len(described) - 1)
    named = " ".join(parts if rng.random() < 0.6 else described[start : start + rng.choice([2, 3])])
    link = "con" if spanish else "with"
    wording = rng.choice([f"{verb} {named} {link} {joined}", f"{verb} {named}: {joined}",
                          f"{link.capitalize()} {joined}, {verb.lower()} {named}"])  # fmt: skip
    return Known(f"{server}__{'_'.join(parts)}", prose, parameters, ((spanish, wording),))


SPANISH_VERBS = ("Usa", "Ejecuta", "Haz", "Quiero", "Necesito", "Lanza", "Muéstrame", "Dime", "Dame")
ENGLISH_VERBS = ("Use", "Run", "Do", "I want", "I need", "Start", "Show me", "Tell me", "Give me")
TALK = (
    ("Hello", "Hello! How can I help?"), ("Hola", "¡Hola! ¿En qué te ayudo?"),
    ("Thanks", "You are welcome."), ("Gracias", "De nada."),
    ("Who are you?", "I am an assistant."), ("¿Quién eres?", "Soy un asistente."),
    ("Good morning", "Good morning! What do you need?"), ("Buenos días", "¡Buenos días! ¿Qué necesitas?"),
    ("Goodbye", "Goodbye!"), ("Adiós", "¡Adiós!"),
)  # fmt: skip
ECHO = (
    ("My name is {n}", "Nice to meet you, {n}."), ("Me llamo {n}", "Encantado, {n}."),
    ("Repeat {n}", "{n}"), ("Repite {n}", "{n}"),
)  # fmt: skip
SYSTEMS = ("", "", "You are a helpful assistant.", "Eres un asistente útil.")
ROUTINES = (
    ("salir-de-viaje", "Prepara un viaje: billete de tren y taxi.", "travel__find_train", "taxi__call_taxi"),
    ("avisar-del-tiempo", "Consulta el tiempo y avisa por correo.", "meteo__get_weather", "mail__send_mail"),
    ("close-a-ticket", "Opens a ticket and notes it down.", "desk__open_ticket", "notes__add_note"),
)
BY_NAME = {tool.name: tool for tool in KNOWN}


def row(rng: random.Random, *, invented_share: float, max_tools: int, routine_share: float = 0.0) -> Row:
    """One conversation of the corpus."""
    draw = rng.random()
    if draw < 0.18:
        return _talk(rng)
    if draw < 0.18 + routine_share:
        return _routine(rng) if rng.random() < 0.5 else _pair(rng)
    return _single(rng, invented_share, max_tools)


def known_row(rng: random.Random, max_tools: int) -> Row:
    """A request for a tool that the base knows."""
    return _single(rng, 0.0, max_tools)


def _talk(rng: random.Random) -> Row:
    shown = [tool.schema(rng) for tool in rng.sample(KNOWN, rng.randint(0, 2))]
    if rng.random() < 0.25:
        asked, answer = rng.choice(TALK)
    else:
        asked, answer = rng.choice(ECHO)
        said = words(rng, 2, 12) if asked.startswith("Rep") else word(rng).capitalize()
        asked, answer = asked.format(n=rng.choice(QUOTES).format(said)), answer.format(n=said)
    turn = chat.say(answer, think="No tool needed.")
    return _row("talk", rng.choice(SYSTEMS), shown, [chat.user(asked), turn])


def _single(rng: random.Random, invented_share: float, max_tools: int) -> Row:
    new = rng.random() < invented_share
    wanted = invented(rng) if new else rng.choice(KNOWN)
    others = []
    for _ in range(rng.randint(0, max_tools - 1)):
        sibling = wanted.name.split("__")[0] if new and rng.random() < 0.6 else ""
        others.append(invented(rng, sibling) if rng.random() < (0.7 if new else 0.15) else rng.choice(KNOWN))
    asked, arguments, spanish = wanted.ask(rng)
    messages = [chat.user(asked), _call(wanted, arguments)]
    if rng.random() < 0.2:
        value = next(iter(arguments.values()))
        messages += [
            chat.result(rng.choice(["ok", "done", f"saved as {word(rng)}"])),
            chat.say(
                ("Listo: " if spanish else "Done: ") + quote(rng, value, spanish) + ".", think="Tool done."
            ),
        ]
    bucket = "invented" if new else "known"
    return _row(bucket, rng.choice(SYSTEMS), _shown(rng, wanted, *others), messages)


def _pair(rng: random.Random) -> Row:
    """Two requests in one message, answered one after the other."""
    first, second = (invented(rng) if rng.random() < 0.5 else rng.choice(KNOWN) for _ in range(2))
    asked, arguments, spanish = first.ask(rng)
    then, more, _ = second.ask(rng)
    messages = [
        chat.user(f"{asked}. {'Luego' if spanish else 'Then'}: {then}"),
        _call(first, arguments),
        chat.result("ok"),
        _call(second, more),
        chat.result("done"),
        chat.say("Listo." if spanish else "Done.", think="Both tools done."),
    ]
    return _row("pair", rng.choice(SYSTEMS), _shown(rng, first, second), messages)


def _routine(rng: random.Random) -> Row:
    """A skill of the base: two calls in a fixed order and a report in a fixed form."""
    name, description, *calls = rng.choice(ROUTINES)
    arguments = [BY_NAME[c].ask(rng)[1] for c in calls]
    values = {k: v for one in arguments for k, v in one.items()}
    listed = ", ".join(f"{k} {quote(rng, v, True)}" for k, v in values.items())
    messages = [chat.user(f"{name.replace('-', ' ').capitalize()}: {listed}")]
    for number, call in enumerate(calls, 1):
        tool = BY_NAME[call]
        messages.append(_call(tool, {p: values[p] for p, _ in tool.parameters}, f"Step {number} of 3."))
        messages.append(chat.result(rng.choice(["ok", "done"])))
    report = "## Report\n" + "\n".join(f'- {k}: "{v}"' for k, v in values.items())
    messages.append(chat.say(report, think="Step 3 of 3: report."))
    text = f"# Skill: {name}\n{description}"
    return _row("routine", text, _shown(rng, *(BY_NAME[c] for c in calls)), messages)


def _call(tool: Known, arguments: dict[str, Any], think: str = "") -> chat.Message:
    thought = f"{think} Use `{tool.name}`.".strip()
    return chat.call("mcp__" + tool.name, arguments, think=thought)


def _shown(rng: random.Random, *tools: Known) -> list[Tool]:
    unique = {tool.name: tool.schema(rng) for tool in tools}
    shown = list(unique.values())
    rng.shuffle(shown)
    return shown


def _row(bucket: str, system: str, tools: list[Tool], messages: list[chat.Message]) -> Row:
    return Row(
        id="",
        bucket=bucket,
        group=bucket,
        split="train",
        tools=tools,
        messages=chat.system(system) + messages,
    )


def replay_rows() -> list[Row]:
    """The rows of `examples/replay.jsonl`: known tools, and small talk, with the right answers."""
    rows = []
    for i in range(REPLAY_ROWS):
        rng = random.Random(REPLAY_SEED + i)
        made = _talk(rng) if i % 5 == 4 else known_row(rng, 3)
        end = chat.assistant_turns(made.messages)[0] + 1
        rows.append(Row(
            id=f"replay-{i:04d}", bucket="replay", group=f"replay-{i:04d}", split="train",
            source="trainer/tiny/corpus.py", tools=made.tools, messages=made.messages[:end],
        ))  # fmt: skip
    return rows


if __name__ == "__main__":
    chat.write_rows(REPLAY_FILE, replay_rows())
