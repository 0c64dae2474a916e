"""What the tiny base learns from: small talk, calls of everyday tools and of invented ones, routines.

None of it shows the user's tools or skills. `python -m trainer.tiny.corpus` writes the prompts of the
replay bucket (`examples/replay.jsonl`) from seeds that pre-training does not use.
"""

import random
from pathlib import Path
from typing import Any

from core import chat
from core.chat import Row, Tool
from trainer.tiny import natural
from trainer.tiny.tools import PARAMETERS, QUOTES, VALUES, WORDS, Known, quote, word, words

REPLAY_FILE = Path("examples/replay.jsonl")
REPLAY_SEED, REPLAY_ROWS = 7_000_000, 470


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
TALKING, UNSERVED = 0.15, 0.05
"""Shares of small talk, and of requests whose tool is not shown."""
BY_NAME = {tool.name: tool for tool in KNOWN}


def row(rng: random.Random, *, invented_share: float, max_tools: int, routine_share: float = 0.0) -> Row:
    """One conversation of the corpus."""
    draw = rng.random()
    if draw < TALKING:
        return _talk(rng)
    if draw < TALKING + UNSERVED:
        return _unserved(rng, max_tools)
    if draw < TALKING + UNSERVED + routine_share:
        return _routine(rng) if rng.random() < 0.6 else _pair(rng)
    return _single(rng, invented_share, max_tools)


def choice_row(rng: random.Random) -> Row:
    """A request for one of two tools that are much alike."""
    wanted, other = natural.server(rng, 2)
    asked, arguments, _ = wanted.ask(rng)
    return _row("invented", "", _shown(rng, wanted, other), [chat.user(asked), _call(wanted, arguments)])


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
    count = rng.randint(1, max_tools)
    if new and rng.random() < 0.75:
        wanted, *others = natural.server(rng, count)
    else:
        wanted = invented(rng) if new else rng.choice(KNOWN)
        others = [_other(rng, wanted, new) for _ in range(count - 1)]
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


def _other(rng: random.Random, wanted: Known, new: bool) -> Known:
    sibling = wanted.name.split("__")[0] if new and rng.random() < 0.6 else ""
    return invented(rng, sibling) if rng.random() < (0.7 if new else 0.15) else rng.choice(KNOWN)


def _unserved(rng: random.Random, max_tools: int) -> Row:
    """A request for a tool that is not shown."""
    wanted, *others = natural.server(rng, max(2, max_tools))
    asked, _, spanish = wanted.ask(rng)
    answer = "Con estas herramientas no puedo." if spanish else "I cannot do that with these tools."
    turn = chat.say(answer, think="No tool fits.")
    return _row("unserved", rng.choice(SYSTEMS), _shown(rng, *others), [chat.user(asked), turn])


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
    """A skill of the base: calls in a fixed order and a report in a fixed form."""
    if rng.random() < 0.4:
        name, description, *names = rng.choice(ROUTINES)
        calls, headings = [BY_NAME[c] for c in names], ["Report"]
    else:
        calls = natural.server(rng, rng.choice([2, 2, 2, 3]))
        name = f"{rng.choice(WORDS).lower()}-{rng.choice(WORDS).lower()}"
        description = ". ".join(tool.description for tool in calls)
        headings = [rng.choice(WORDS).capitalize() for _ in range(rng.choice([1, 2, 2]))]
    values = {k: v for tool in calls for k, v in tool.ask(rng)[1].items()}
    listed = ", ".join(f"{k} {quote(rng, v, True)}" for k, v in values.items())
    messages = [chat.user(f"{name.replace('-', ' ').capitalize()}: {listed}")]
    for number, tool in enumerate(calls, 1):
        step = f"Step {number} of {len(calls) + 1}."
        messages.append(_call(tool, {p: values[p] for p, _ in tool.parameters}, step))
        messages.append(chat.result(rng.choice(["ok", "done"])))
    lines = [f'- {k}: "{v}"' for k, v in values.items()]
    report = "\n".join(
        line for i, title in enumerate(headings) for line in (f"## {title}", *lines[i :: len(headings)])
    )
    messages.append(chat.say(report, think=f"Step {len(calls) + 1} of {len(calls) + 1}: report."))
    text = f"# Skill: {name}\n{description}\n{' '.join(f'## {title}' for title in headings)}"
    return _row("routine", text, _shown(rng, *calls), messages)


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
