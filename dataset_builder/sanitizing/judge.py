"""Whether a value can be a secret: not a stand-in, not code, not words, and hard enough to guess."""

import math
import re
from collections import Counter
from functools import lru_cache
from itertools import pairwise

from dataset_builder.sanitizing.placeholders import PLACEHOLDER

STAND_IN = re.compile(
    r"""(?ix)
    example | ejemplo | placeholder | change[-_ ]?(?:me|it|this) | cambia(?:me|r|lo) | redact | censurad
    | \{[A-Za-z_][\w.]*\}
    | x{4,} | \*{3,} | \.{3} | … | •{3} | _{4,} | -{4,} | 0{10,} | \$[({] | \{\{ | <[^<>]*> | %\(\w+\)s
    | ^\$\w+$ | ^%\w+%$ | ^@\w+@$ | ^\[[^\]]*\]$ | ^\{[^}]*\}$ | ^:\w+$
    | ^(?:none|null|nil|true|false|undefined|yes|no|n/?a|unset|empty|str|string|int|integer|bool|boolean|float
        |number|bytes|object|any|dict|list|text)$
    | ^(?:abc|123|qwerty|asdf)+\w{0,3}$
    | ^ENC[\[(] | ^\{cipher\} | ^vault:v\d | ^!?vault\b | ^op:// | ^secretsmanager: | ^ssm: | ^AQICAH
    """
)
"""What documents write where a secret would stand, and what is encrypted already."""
SPOKEN = re.compile(
    r"""(?ix) (?:^|[^a-z])(?:your?|tu|su|mi|my|insert|inserta|put|pon|enter|replace|reempla[cz]a|fake|todo
    |fixme|lorem|ipsum|foo|bar|baz|some|valor|value|aqu[ií]|here|goes|sample|dummy|secret[oa]?|password|contraseña
    |token|clave|key|test)(?:[^a-z]|$)"""
)
"""Words that say so only where the value is made of words: a random one may hold `-mi-` by chance."""
PUBLIC = re.compile(
    r"""(?x) (?:age1[0-9a-z]{50} | bc1 | ltc1 | npub1 | AAAA[A-Z]3Nza | 0x[0-9a-fA-F]{40}(?![0-9a-fA-F])
    | ssh- | (?:sha|SHA)\d{1,3}[:-] | MIIBIjANBg | MIICIjANBg | MFkwEwYHKoZIzj0 | MCowBQYDK2V
    | Ag[A-D][A-Za-z0-9+/]{60} | pk_(?:live|test)_ | pk\.eyJ)"""
)
"""How public keys, their fingerprints, addresses of coins and sealed secrets (Kubernetes) begin."""
MARKS = re.compile(r"[^\w\s.<>\[\]{}:/-]")
EXPRESSION = re.compile(
    r"""(?x)
    [\w.\[\]'"]*\([^()]*\) | [A-Za-z_][A-Za-z_.]*\d?\( | [\w.]+\[ | :: | [\\/.~]{0,2}/[\w./-]+$ | https?://
    | (?:os|process|self|this|config|settings|env|request|args|params|ctx|secrets|vars)\.
    """
)
DIGIT = re.compile(r"\d")
NAME = re.compile(r"[A-Za-z_]\w*(?:[.:/-]+\w+)*")
UUID = re.compile(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SEGMENT = re.compile(r"[A-Z]?[a-záéíóúñü]+|[A-ZÁÉÍÓÚÑÜ]+(?![a-z])|[A-Z]|\d+|[^\W\d_]|[\W_]+")
VOWELS = frozenset("aeiouyáéíóúü")
UNSAYABLE = re.compile(r"(?i)[^aeiouyáéíóúü]{5}|[aeiou]{4}|(.)\1\1|q[^u]")
WORD_BITS = 1.5
"""Per letter of a word: a rough figure, text being far easier to guess than random letters."""
NAME_BITS = 3.0
"""Per character: names in code stay below, random letters and digits above."""
MOST_BITS = math.log2(26 + 26 + 10 + 10)
"""Per character: `bits` counts no larger alphabet."""


@lru_cache(maxsize=8192)
def is_stand_in(value: str) -> bool:
    """`your-api-key-here`, `<TOKEN>`, `${VAR}`, `AKIA…EXAMPLE`, `xxxx`, a public key, our own placeholder."""
    if STAND_IN.search(value) or PLACEHOLDER.search(value) or PUBLIC.match(value) or len(set(value)) < 4:
        return True
    wordy = not MARKS.search(value) and bits(value) < max(26.0, 2.6 * len(value))
    return wordy and SPOKEN.search(value) is not None


def has_digit(value: str) -> bool:
    """Whether one of its characters is a digit, of whatever script."""
    return DIGIT.search(value) is not None or (not value.isascii() and any(map(str.isdigit, value)))


def is_code(value: str) -> bool:
    """An expression, a path, a name: no literal value."""
    return is_expression(value) or is_name(value)


def is_expression(value: str) -> bool:
    """A call, an attribute, an index, a path, an address."""
    return EXPRESSION.match(value) is not None or "=>" in value


def is_name(value: str) -> bool:
    """Words and numbers joined as in code: `user_name2`, `config.api.key`, `MAX_LEN`."""
    return NAME.fullmatch(value) is not None and bits(value) < NAME_BITS * len(value)


@lru_cache(maxsize=8192)
def bits(value: str) -> float:
    """How hard a value is to guess, in bits: roughly, and never more than its own characters carry.

    Letters that make words count `WORD_BITS` each; the rest count the logarithm of the alphabets in use.
    """
    hard = [part for part in SEGMENT.findall(value) if not is_word(part)]
    letters = sum(map(len, hard))
    alphabet = sum(
        size
        for size, test in ((26, str.islower), (26, str.isupper), (10, str.isdigit), (10, _is_mark))
        if any(test(letter) for part in hard for letter in part)
    )
    guess = letters * math.log2(alphabet or 1) + WORD_BITS * (len(value) - letters)
    return min(guess, len(value) * _shannon(value)) * (1 - _sequential(value))


def looks_random(value: str) -> bool:
    """A token by its look alone: long, of one piece, letters and digits, no words."""
    mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and " " not in value
    return len(value) >= 16 and mixed and bits(value) >= 56 and not is_stand_in(value)


def is_secret(value: str) -> bool:
    """What a library's finding must pass."""
    return bits(value) >= 24 and not is_stand_in(value) and not is_code(value)


def is_word(part: str) -> bool:
    """Letters that could be said: some vowels, no long run of consonants; or a single separator."""
    if not part[0].isalpha():
        return _is_mark(part[0]) and len(part) == 1
    vowels = sum(letter in VOWELS for letter in part.lower())
    return len(part) > 2 and 0.2 <= vowels / len(part) <= 0.75 and not UNSAYABLE.search(part)


def _is_mark(letter: str) -> bool:
    return not letter.isalnum()


def _shannon(value: str) -> float:
    """Bits a character by the frequencies of the value itself (Shannon 1948)."""
    counts = Counter(value)
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values()) if value else 0.0


def _sequential(value: str) -> float:
    """The share of neighbours that follow each other (`abcd`, `4321`, `1111`), where it is most of them."""
    steps = [abs(ord(b) - ord(a)) <= 1 for a, b in pairwise(value)]
    share = sum(steps) / len(steps) if steps else 0.0
    return share if share > 0.4 else 0.0
