"""Texts that look real, by the name and description of the parameter that they are for.

`KINDS` of dataset_builder/values.py are the base; here are the names that MCP servers use for them.
"""

import functools
import random
import re
from collections.abc import Callable

from dataset_builder.drawing.values import AREAS, KINDS, PARTS

Maker = Callable[[random.Random], str]

THINGS = (
    "el inicio de sesión|la exportación a CSV|el buscador|la paginación|el carrito|"
    "el formulario de alta|la barra lateral|el menú|el envío de correos|la copia de seguridad|"
    "el panel de control|el filtro de fechas|la subida de archivos|el informe mensual|"
    "la página de error|el tema oscuro|la caché|la API de pagos|el cálculo del IVA|la lista de pedidos|"
    "el aviso de cookies|la firma digital|el calendario|la ficha de cliente"
).split("|")
TROUBLES = (
    "falla|tarda demasiado|no responde|muestra datos antiguos|se duplica|pierde el orden|"
    "no guarda los cambios|se ve cortado|da un error 500|no respeta los permisos|se queda en blanco|"
    "no traduce los textos"
).split("|")
WHEN = (
    "en móvil|con muchos registros|en Safari|tras la última versión|al volver atrás|sin conexión|"
    "por la noche|con usuarios nuevos|en pantallas grandes|al cambiar de idioma|desde la VPN|"
    "en el entorno de pruebas"
).split("|")
ACTIONS = (
    "Revisar|Corregir|Documentar|Simplificar|Acelerar|Traducir|Probar|Rediseñar|Ordenar|Medir|Retirar|Ampliar"
).split("|")
NEXT = (
    "Hay que tenerlo antes del viernes.|Lo ha pedido el equipo de soporte.|Afecta a varios clientes.|"
    "Queda por decidir quién lo revisa.|La prueba automática no lo detecta.|"
    "Ya pasó en la versión anterior.|No urge, pero conviene no olvidarlo.|"
    "Se reproduce siempre con los mismos pasos."
).split("|")
FIRST = (
    "lucia marta pablo diego elena ines hugo nora bruno clara david irene jorge laura mario olga raul sara "
    "tomas vera adrian berta carlos dario eva felix gloria ivan julia leo"
).split()
LAST = (
    "moreno vidal ferrer ruiz soler ortega prieto campos rey lozano marin duarte cano ibarra nieto pastor "
    "rubio salas torres vega blanco cortes duran gallego herrera iglesias luque mora navas otero"
).split()
LABELS = (
    "error mejora urgente duda documentación diseño accesibilidad rendimiento seguridad traducción datos "
    "pruebas móvil facturación soporte backend frontend"
).split()
QUERIES = (
    "factura|plantilla de correo|permisos|contrato|guía de estilo|despliegue|informe anual|vacaciones|"
    "copias de seguridad|inventario|política de datos|presupuesto|acta de reunión|tarifas|manual de acogida"
).split("|")
HOSTS = ("docs.example.com", "wiki.example.org", "intranet.example.net", "blog.example.com")
LOCALES = ("es-ES", "es-MX", "es-AR", "en-GB", "en-US", "ca-ES", "gl-ES", "eu-ES", "pt-PT", "fr-FR")
CATEGORIES = (
    ("state|status", "open closed active future done draft pending resolved archived"),
    ("sort|sort_by|order_by", "created updated title name relevance popularity author number"),
    ("order|direction", "asc desc ascending descending newest oldest"),
    ("format", "markdown html json text xhtml csv storage wiki"),
    ("operation|action|method|do", "read update delete create restore export view edit"),
    ("position", "before after append first last above below"),
    ("mode", "append prepend replace full quick strict preview simple auto"),
    ("visibility|access", "public private internal team restricted hidden"),
    ("level|priority|severity", "low medium high critical minor major none"),
    ("type|kind|subtype", "task bug story epic feature chore incident change"),
)
"""What is usual where neither the schema nor its description names the values; each side has some."""
EMOJI = "📌 🚀 🧪 📦 🗂️ 🧭 🔧 📅 🧾 🛠️ 🌱 🎨 📈 🔒 🧰 📣".split()


def _hex(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("0123456789abcdef") for _ in range(count))


def uuid(rng: random.Random) -> str:
    """A random version-4 UUID."""
    return f"{_hex(rng, 8)}-{_hex(rng, 4)}-4{_hex(rng, 3)}-{rng.choice('89ab')}{_hex(rng, 3)}-{_hex(rng, 12)}"


def _word(rng: random.Random) -> str:
    return KINDS["word"](rng)


def name(rng: random.Random) -> str:
    """A name that somebody gave to something."""
    return f"{rng.choice(PARTS).capitalize()} de {rng.choice(AREAS)} {_word(rng)}"


def version(rng: random.Random) -> str:
    """A semantic version, as tags write it."""
    return f"v{rng.randint(0, 9)}.{rng.randint(0, 30)}.{rng.randint(0, 30)}"


def title(rng: random.Random) -> str:
    """A short line: an issue's title, a page's, a sprint's goal."""
    thing = rng.choice(THINGS)
    if rng.random() < 0.5:
        return f"{thing[0].upper()}{thing[1:]} {rng.choice(TROUBLES)} {rng.choice(WHEN)}"
    return f"{rng.choice(ACTIONS)} {thing} de {rng.choice(AREAS)} {rng.choice(WHEN)}"


def sentence(rng: random.Random) -> str:
    """A remark of one or two sentences."""
    thing = rng.choice(THINGS)
    remark = f"{thing[0].upper()}{thing[1:]} {rng.choice(TROUBLES)} {rng.choice(WHEN)}."
    return remark if rng.random() < 0.5 else f"{remark} {rng.choice(NEXT)}"


def markdown(rng: random.Random) -> str:
    """A text of several lines: paragraphs, a list, sometimes code that depends on its blanks."""
    steps = "\n".join(f"{n}. {rng.choice(ACTIONS)} {rng.choice(THINGS)}" for n in range(1, rng.randint(3, 4)))
    parts = [sentence(rng), rng.choice((f"## Pasos\n\n{steps}", steps, f"- {title(rng)}\n- {title(rng)}"))]
    if rng.random() < 0.3:
        parts.append(f"```python\n{code(rng)}\n```")
    return "\n\n".join(parts)


def body(rng: random.Random) -> str:
    """A text of any length."""
    return markdown(rng) if rng.random() < 0.4 else sentence(rng)


def code(rng: random.Random) -> str:
    """A few lines of Python."""
    name, other = KINDS["word"](rng), rng.choice(PARTS)
    return (
        f'def {other}_{name}(filas):\n    """{title(rng)}."""\n    return [f for f in filas if f["{other}"]]'
    )


def username(rng: random.Random) -> str:
    """A login name."""
    return f"{rng.choice(FIRST)}{rng.choice(['.', '-', ''])}{rng.choice(LAST)}"


def key(rng: random.Random) -> str:
    """The key of a project or space: capitals."""
    return KINDS["word"](rng)[: rng.randint(3, 5)].upper()


def date(rng: random.Random) -> str:
    """A day, YYYY-MM-DD."""
    return KINDS["date"](rng)


def date_time(rng: random.Random) -> str:
    """A moment in UTC, RFC 3339."""
    return f"{date(rng)}T{rng.randint(0, 23):02d}:{rng.choice(['00', '15', '30', '45'])}:00Z"


def email(rng: random.Random) -> str:
    """An address at example.com."""
    return f"{rng.choice(FIRST)}.{rng.choice(LAST)}@example.com"


def url(rng: random.Random) -> str:
    """An address of a documentation site that cannot exist."""
    return f"https://{rng.choice(HOSTS)}/{rng.choice(AREAS)}/{rng.choice(PARTS)}-{KINDS['word'](rng)}"


def path(rng: random.Random) -> str:
    """A file within a repository."""
    return f"{rng.choice(['src', 'docs', 'app', 'lib'])}/{rng.choice(AREAS)}/{KINDS['file'](rng)}"


def image(rng: random.Random) -> str:
    """The absolute path of a picture."""
    name = f"{rng.choice(PARTS)}_{KINDS['word'](rng)}.{rng.choice(['png', 'jpg', 'webp'])}"
    return f"/home/{rng.choice(FIRST)}/{rng.choice(['imagenes', 'capturas', 'logos'])}/{name}"


def node_id(rng: random.Random) -> str:
    """An opaque identifier as GitHub's GraphQL gives them, shorter than any token."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    return "PRRT_kwDO" + "".join(rng.choice(letters) for _ in range(9))


def _number(low: int, high: int) -> Maker:
    return lambda rng: str(rng.randint(low, high))


def _issue_key(rng: random.Random) -> str:
    return f"{key(rng)}-{rng.randint(1, 2400)}"


def _prefixed(prefix: str) -> Maker:
    return lambda rng: prefix + str(rng.randint(10**6, 10**9))


def _one_of(words: str) -> Maker:
    return lambda rng: rng.choice(words.split())


FORMATS: dict[str, Maker] = {
    "date": date,
    "date-time": date_time,
    "time": lambda rng: f"{KINDS['time'](rng)}:00Z",
    "email": email,
    "uri": url,
    "url": url,
    "uuid": uuid,
    "hostname": lambda rng: f"{rng.choice(AREAS)}-{KINDS['word'](rng)}.example.net",
    "ipv4": lambda rng: f"192.0.2.{rng.randint(1, 254)}",
}
"""By the schema's `format`; domains and addresses are those that RFC 2606 and 5737 keep for examples."""

_BY_DESCRIPTION: tuple[tuple[str, str, Maker], ...] = (
    (r"id$|after$|before$|uuid", r"\buuid\b", uuid),
    (r"id$", r"node id|graphql", node_id),
    (r"id$", r"att\d{4}", _prefixed("att")),
    (r"path$|file$", r"\bimage", image),
    (r"path$|file$", r"absolute", lambda rng: f"/home/{rng.choice(FIRST)}/{path(rng)}"),
    (r"colou?r$", r"without|hex code|hexadecimal", lambda rng: _hex(rng, 6)),
    (r"(date|since|until|before|after|start|started|end|updated|published)$", r"iso|rfc", date_time),
    (r"(content|body|text)$", r"\bfile\b", lambda rng: code(rng) + "\n"),
)
"""(end of the name, what the description must say, maker): asked before the names alone."""

_BY_NAME: tuple[tuple[str, Maker], ...] = (
    (r"ids_or_key$", _issue_key),
    (r"gist_id$", lambda r: _hex(r, 32)),
    (r"shape_?id$", uuid),
    (r"ghsa_?id$", lambda r: "GHSA-" + "-".join(_word(r)[:4] for _ in range(3))),
    (r"cwe$", lambda r: f"CWE-{r.randint(20, 1300)}"),
    (r"(issue|epic|parent)_keys?$", _issue_key),
    (r"(project|space|board)_key$|^project$", key),
    (r"jql", lambda r: f"project = {key(r)} AND status = \"{r.choice(['To Do', 'In Progress'])}\""),
    (r"cql", lambda r: f"space = {key(r)} AND text ~ \"{r.choice(QUERIES)}\""),
    (r"(owner|org|organization|namespace|workspace)$", lambda r: f"{r.choice(AREAS)}-{_word(r)}"),
    (r"(repo|repository|project_name)$", lambda r: f"{r.choice(AREAS)}-{r.choice(PARTS)}-{_word(r)[:4]}"),
    (r"(file_?name|file)$", KINDS["file"]),
    (r"(directory|folder|dir)$", KINDS["path"]),
    (r"(path|destination|source)$", path),
    (r"(branch|branch_name|head|base|ref|commitish|base_ref|rama)$", KINDS["branch"]),
    (r"(commit|commit_?id|sha|digest|hash)$", lambda r: _hex(r, 40)),
    (r"(tag|tag_name|version|release)$", version),
    (r"e?mail$", email),
    (r"(user_identifier|account_id)$", email),
    (r"(user|username|login|assignee|author|reviewer|creator|actor|member|\w_by|participant)$", username),
    (r"(ur[li]|link|href|website)$", url),
    (r"(estimate|time_spent|duration)$", lambda r: f"{r.randint(1, 9)}h {r.choice([10, 15, 20, 30, 45])}m"),
    (r"colou?r$", lambda r: "#" + _hex(r, 6).upper()),
    (r"(emoji|icon)$", lambda r: r.choice(EMOJI)),
    (r"(time_?zone|tz)$", KINDS["timezone"]),
    (r"(time|hour)$", KINDS["time"]),
    (r"(date|since|until|started|deadline|due|day|updated|published|modified)$", date),
    (r"(label|component|category|keyword)$", lambda r: f"{r.choice(LABELS)}-{_word(r)[:4]}"),
    (r"(query|q|search|contains|filter|term|pattern)$", lambda r: f"{r.choice(QUERIES)} {r.choice(AREAS)}"),
    (r"(team_slug|slug)$", lambda r: f"{r.choice(AREAS)}{_word(r)}"),
    (r"(title|summary|subject|heading|heading_text|goal|headline|topic)$", title),
    (r"(code|script)$", code),
    (r"(body|content|markdown|description|new_content)$", body),
    (r"(comment|message|text|note|rationale|reason|prompt|instructions|question|text_selection)$", sentence),
    (r"(number|index)$", _number(2, 2400)),
    (r"ids?$", _number(10**4, 10**8)),
    (r"(name|label_name|alias)$", name),
    *((rf"({ending})$", _one_of(words)) for ending, words in CATEGORIES),
    (r"(group)$", lambda r: f"{r.choice(LABELS)}-{_word(r)[:2]}"),
    (r"(port)$", _number(1024, 9999)),
    (r"(locale|language|lang)$", lambda r: r.choice(LOCALES)),
    (r"(city|location|place)$", lambda r: r.choice(AREAS).capitalize() + _word(r)),
)  # fmt: skip
"""By the end of the parameter's name in snake case."""


def snake(name: str) -> str:
    """`pullNumber`, `commit-ID` -> `pull_number`, `commit_id`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


@functools.cache
def maker(name: str, description: str) -> Maker:
    """What draws a text for a parameter; a word or two where the name says nothing."""
    plain, said = snake(name), description.lower()
    if re.search(r"[^s]s$", plain) and not plain.endswith("status"):
        plain = plain[:-1]
    for ending, needed, make in _BY_DESCRIPTION:
        if re.search(ending, plain) and re.search(needed, said):
            return make
    for ending, make in _BY_NAME:
        if re.search(rf"(?:^|_)(?:{ending})" if not ending.startswith("^") else ending, plain):
            return make
    return lambda rng: f"{rng.choice(PARTS)} {KINDS['word'](rng)}"
