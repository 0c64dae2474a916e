"""Tokens of vendors that no rule knows: a prefix, a separator, a long random body; or random all through."""

import re

from dataset_builder.sanitizing import judge

FIRST_DIGIT = "|".join(rf"[A-Za-z_][A-Za-z_-]{{{n}}}[0-9][A-Za-z0-9_-]{{{18 - n},}}" for n in range(18))
RUN = rf"[0-9][A-Za-z0-9_-]{{19,}}|{FIRST_DIGIT}|[A-Za-z_][A-Za-z_-]{{18,}}[0-9][A-Za-z0-9_-]*"
"""RE2: what may be one, 20 characters and more; its first digit is one of the first 20, or stands later."""
PREFIXED = re.compile(r"((?:(?:[a-z]{1,12}[0-9]{0,2}|[A-Z]{2,10})[_-]){1,4})([A-Za-z0-9_-]{16,})")
NAMES_OF_THINGS = frozenset(
    """sha sha1 sha256 sha384 sha512 md5 blake3 blake2b crc etag commit rev revision tree blob digest hash
    checksum integrity fingerprint image img layer container pod node id uuid guid trace span request
    req run job build call toolu tooluse chatcmpl cmpl msg message thread asst resp file step evt event
    cus ch pi pm in sub prod price si cs txn seti acct user usr org proj project ws env deploy
    deployment dpl release version v asset chunk bundle vendor main index app page css js font icon
    cache session tmp temp test backup snapshot vol eni ami subnet vpc sg rtb igw i arn srv task exec rs
    fc item obj object ref branch feature fix bot conv conversation upload batch eval pk phc pub public
    publishable ssh rsa ed25519 ecdsa kid doc block row col nonce lorem ipsum sample example ejemplo foo
    bar""".split()
)
"""Prefixes of identifiers that are meant to be seen: tool calls, commits, customers, published keys."""
PUBLISHED = frozenset("pk public publishable pub sha256 sha512 sha384 sha1 md5".split())
SECRETIVE = frozenset(
    "sk secret key apikey token tok pat live prod private priv auth access refresh api bearer rk".split()
)
HEX = re.compile(r"(?:0x)?[0-9a-fA-F-]+")
NAMED_BEFORE = re.compile(
    r"""[\w-]{2,}\\*["'\]]{0,2}[ ]?[:=][ ]?\\*["']?(?:W/")?\Z|(?i:sha-?\d+|md5)[:= -]*\Z|-----\s*\Z"""
)
"""A name for the value that is no word of secrets (context.py looks at those), or the head of a PEM block."""
BASE64_AROUND = "/+="
BASE64_LINE = re.compile(r"[A-Za-z0-9+/=]{40}")
BODY_BITS = 72
BARE_BITS = 130
SHORTEST_BARE, LONGEST_BARE = 32, 100


def is_token(text: str, start: int, end: int) -> bool:
    """Whether the run of letters, digits, `_` and `-` at `start` is a secret by its look alone."""
    run = text[start:end]
    found = PREFIXED.fullmatch(run)
    if not found and not SHORTEST_BARE <= len(run) <= LONGEST_BARE:
        return False
    if ("-" in run and judge.UUID.search(run)) or judge.is_stand_in(run):
        return False
    around = text[start - 1 : start] + text[end : end + 1]
    if found:
        words, body = set(re.split(r"[_-]", found[1].lower())), found[2]
        if words & PUBLISHED or (not words & SECRETIVE and (words & NAMES_OF_THINGS or around[:1] == "/")):
            return False
        if HEX.fullmatch(body):
            return len(body) >= 24 and (bool(words & SECRETIVE) or not any(map(judge.is_word, words - {""})))
        return judge.bits(body) >= BODY_BITS and _mixed(body)
    if any(letter in BASE64_AROUND for letter in around) or HEX.fullmatch(run):
        return False
    if judge.bits(run) < BARE_BITS or not _mixed(run):
        return False
    before, after = text[max(0, start - 72) : start], text[end : end + 72]
    return not (NAMED_BEFORE.search(before) or BASE64_LINE.search(before) or BASE64_LINE.search(after))


def _mixed(body: str) -> bool:
    """Letters and several digits; in lower case alone, more of these, as in base 36."""
    digits = sum(map(str.isdigit, body))
    several = any(map(str.islower, body)) and any(map(str.isupper, body))
    return digits >= 2 if several else digits >= max(3, len(body) // 8) and any(map(str.isalpha, body))
