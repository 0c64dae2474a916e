"""Which names announce a secret: `contraseña`, `API_KEY`, `dbPassword`; not `monkey`, `max_tokens`."""

import re
from functools import lru_cache

LONG = (
    r"pass(?:w(?:or)?d|phrase|code|wort)|pwd|contrase(?:ñ|n|\\u00f1|&ntilde;)a|clave|bindpw"
    r"|secret|token|credential|credencial|bearer|authorization|autorizaci|apikey|llave|cookie"
    r"|connection|webhook|community|appid|pre-?shared|passkey|mnemonic|semilla|recuperaci|recovery"
    r"|licen[cs](?:e|ia)|activation|activaci"
    r"|c[oó]digo (?:de )?(?:verificaci|seguridad|acceso|confirmaci|recuperaci|un solo uso)"
)
SHORT = r"pass|psw|pat|dsn|jwt|otp|sid|seed|pin|puk|cvv|salt|psk|wpa|auth|key"
"""Those that also stand inside other words (compass, author, monkey)."""
OWNERS = r"api|access|secret|private|db|user|root|admin|my|smtp|ftp|redis|mysql|pg"
REST = r"(?:[_0-9A-Z-][\w-]*|\b)"
NAMES = (
    rf"[\w.$-]*(?i:{LONG})[\w-]*"
    rf"|(?:[\w.$-]*[_.-]|\b)(?i:{SHORT})(?:[sS]?[_0-9-][\w-]*|[sS]?\b)"
    rf"|[\w.$-]*[a-z](?:Key|Pass|Pwd|Auth|Pin){REST}"
    rf"|[\w.$-]*(?i:{OWNERS})(?:key|pass|KEY|PASS){REST}"
)
"""RE2: names with one of these words in them; `kind` decides."""
WORD = re.compile(rf"(?i){LONG}|{SHORT}")
PASSWORD = re.compile(r"(?i)pass(?!port)|pwd|psw|contrase|clave|bindpw|community")
PIN = re.compile(r"(?i)pin|otp|puk|cvv|c[oó]digo")
INNER = re.compile(rf"(?i){SHORT}|appid|licen[cs](?:e|ia)|recovery|connection|community|clave")
OWNER = re.compile(
    rf"(?i)(?:{OWNERS}|auth|encrypt(?:ion)?|sign(?:ing)?|account|master|app|license|shared|client|service|deploy"
    r"|storage|subscription|http|o)$"
)
OTHER_BEFORE = re.compile(
    r"(?i)(?:^|[_.-])(?:max|min|num|n|total|count|prompt|completion|input|output|next|prev|page|primary|foreign"
    r"|public|pub|publishable|cache|partition|sort|idempotency|unique|composite|row|hot|group|index|object|message"
    r"|translation|range|continuation|sync|websocket|evaluated|start|starting|resume|resumption|forward|backward"
    r"|cursor|pagination|delta|marker|scroll|skip|special|pad|eos|bos|unk|stop|sha\d*|md5|git|commit|dedup\w*"
    r"|lookup|map|column)[_.-]?$"
)
OTHER_AFTER = re.compile(
    r"(?i)s?[_-]?(?:ids?|name|count|type|ur[li]|path|file|filename|len|length|limit|size|expir\w*|ttl|hash|digest"
    r"|policy|min\w*|max\w*|field|env|var|format|prefix|header|version|regex|pattern|usage|budget|index|at|date"
    r"|created|rotation|enabled|required|reset|hint|label|ref|arn|alias|fingerprint|store|provider|dir|class|error"
    r"|code|ring|s_per\w*|endpoint|method|scheme|server|host|port|user|username|email|status|strategy|algorithm"
    r"|mode)s?$"
)
"""What makes a name one of something else: counts, places, keys of tables, cursors."""
WORD_BEFORE = re.compile(
    r"(?i)(?:p[uú]blic[ao]?|publishable|primary|foreign|partition|sort|cache|palabra|next|siguiente"
    r"|page)[ ]\Z"
)
WORD_AFTER = re.compile(
    r"(?i)[ ](?:fingerprint|huella|id\b|p[uú]blica|primaria|for[aá]nea|ajena"
    r"|de (?:p[aá]gina|paginaci|continuaci|contexto|entrada|salida|idempotencia|cach[eé]|partici[oó]n|orden))"
)
CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
ENDING = re.compile(r"(?:[oa]?s|[oa]|al(?:es)?)?\d*(?![a-z])")
"""What may follow a word without a border: `tokens`, `secreto`, `key2`, `tokenValue`."""


def kind_at(text: str, start: int, end: int) -> str:
    """`kind` of the name from `start` to `end`, or `` where the words around it say otherwise."""
    kind = kind_of(text[start:end])
    if (
        kind
        and text.startswith(" ", start - 1 if start else 0)
        and WORD_BEFORE.search(text, max(0, start - 12), start)
    ):
        return ""
    return "" if kind and text.startswith(" ", end) and WORD_AFTER.match(text, end) else kind


@lru_cache(maxsize=8192)
def kind_of(name: str) -> str:
    """`password`, `token` or `pin`, or `` where the name is about something else."""
    for found in WORD.finditer(name):
        word = found[0]
        if _announces(name[: found.start()], word, name[found.end() :]):
            if PASSWORD.match(word):
                return "password"
            return "pin" if PIN.match(word) else "token"
    return ""


def _announces(before: str, word: str, after: str) -> bool:
    if INNER.fullmatch(word) and before[-1:].isalpha():
        camel = word[0].isupper() and before[-1].islower()
        if not (camel or OWNER.search(before)):
            return False
    if not ENDING.match(after):
        return False
    return not OTHER_BEFORE.search(CAMEL.sub("_", before)) and not OTHER_AFTER.match(CAMEL.sub("_", after))
