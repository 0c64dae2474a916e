"""Values that a run of random characters cannot express: check digits, encodings, things people type."""

import base64
import json
import textwrap
import zlib
from random import Random

from benchmarks.secrets_corpus.templates import ALPHABETS, Maker

USERS = "ana luis admin deploy svc-backup jgarcia marta app root carlos.ruiz api_user postgres lucia".split()
WORDS = "mariposa castillo verano tormenta girasol montana pelota guitarra dragon marea falcon".split()
FIRST = "ana luis marta jorge lucia pablo elena sergio irene carlos nuria david".split()
LAST = "garcia lopez ruiz moreno navarro gil ortega vidal serrano castro".split()
DOMAINS = (
    "gmail.com hotmail.es acme-logistica.es telefonica.net yahoo.es outlook.com talleresmoya.com".split()
)
PROJECTS = "tienda facturas panel portal agenda catalogo nominas almacen".split()
INTERNAL_HOSTS = (  # what the user of the benchmark lists as host names of their own
    "nas.casa-moreno.lan",
    "git.intra.acme-logistica.es",
    "bastion-mad.acme.internal",
    "erp01.talleresmoya.local",
    "k8s-master-2.dc1.acme.internal",
    "vpn.acme-logistica.es",
)
_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"  # Ministerio del Interior: letter = number mod 23
_BBAN = {  # SWIFT IBAN registry: what follows the check digits
    "DE": "d18",
    "FR": "d23",
    "IT": "A1d22",
    "PT": "d21",
    "NL": "A4d10",
    "GB": "A4d14",
    "BE": "d12",
}


def _some(rng: Random, alphabet: str, count: int) -> str:
    return "".join(rng.choices(ALPHABETS[alphabet], k=count))


def password(rng: Random, argument: str = "") -> str:
    """A password as people and generators make them; `url` keeps to characters that a URL may hold."""
    marks = "!-_." if argument == "url" else "!-_.#%*+?="
    if rng.random() < 0.5:
        words = [w.capitalize() for w in rng.sample(WORDS, rng.randint(1, 2))]
        return (
            rng.choice(["", "_", "-", "."]).join(words)
            + _some(rng, "d", rng.randint(2, 4))
            + rng.choice(marks)
        )
    inner = [rng.choice(ALPHABETS["an"] + marks) for _ in range(rng.randint(10, 22))]
    return _some(rng, "aA", 1) + "".join(inner) + _some(rng, "an", 1) + _some(rng, "d", 1)


def checksummed(rng: Random, prefix: str) -> str:
    """`prefix`, 30 random characters and their CRC-32 in 6 digits of base 62 (GitHub's blog, 2021-04-05)."""
    body, digits = _some(rng, "an", 30), "0123456789" + ALPHABETS["A"] + ALPHABETS["a"]
    number, check = zlib.crc32(body.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        check = digits[digit] + check
    return prefix + body + check


def b64_of(rng: Random, template: str) -> str:
    """Base64 of `user:password` (basic credentials), or of so many random bytes."""
    if template == "basic":
        return base64.b64encode(f"{rng.choice(USERS)}:{password(rng)}".encode()).decode()
    if template == "password":
        return base64.b64encode(password(rng).encode()).decode()
    return base64.b64encode(rng.randbytes(int(template))).decode()


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def jwt(rng: Random, claims: str) -> str:
    """A signed JWT (RFC 7519), HS256 or RS256; `claims` is the issuer, if any."""
    algorithm, size = rng.choice([("HS256", 32), ("RS256", 256), ("ES256", 64)])
    head = {"alg": algorithm, "typ": "JWT"}
    body = {"sub": str(rng.randint(1000, 9_999_999)), "iat": rng.randint(1_690_000_000, 1_760_000_000)}
    if claims:
        body = {"iss": claims, **body}
    parts = [_url64(json.dumps(part, separators=(",", ":")).encode()) for part in (head, body)]
    return ".".join([*parts, _url64(rng.randbytes(size))])


def pem_body(rng: Random, kind: str) -> str:
    """Base64 in lines of 64 as inside a PEM block: DER of a private key, of OpenSSH, or PGP packets."""
    starts = {
        "rsa": b"\x30\x82\x04\xa4\x02\x01\x00\x02\x82\x01\x01\x00",
        "ec": b"\x30\x77\x02\x01\x01\x04\x20",
        "pkcs8": b"\x30\x82\x04\xbe\x02\x01\x00\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00",
        "openssh": b"openssh-key-v1\0\0\0\0\x04none\0\0\0\x04none\0\0\0\0\0\0\0\x01\0\0\0\x33",
        "cert": b"\x30\x82\x03\x5d\x30\x82\x02\x45\xa0\x03\x02\x01\x02",
    }
    size = {"ec": 114, "openssh": 340}.get(kind, 600)
    body = base64.b64encode(starts.get(kind, b"") + rng.randbytes(size)).decode()
    return "\n".join(textwrap.wrap(body, 64))


def key_block(rng: Random, argument: str) -> str:
    """A marked private key in PEM or PGP armour: `RSA PRIVATE KEY|rsa` is its label and the kind of body."""
    label, _, kind = argument.partition("|")
    body = pem_body(rng, kind)
    if kind == "pgp":
        body += "\n=" + _some(rng, "b64", 4)
    gap = "\n\n" if kind == "pgp" else "\n"
    return f"⟨-----BEGIN {label}-----⟩{gap}⟦{body}⟧\n⟨-----END {label}-----⟩"


def dni(rng: Random, argument: str) -> str:
    """A DNI; `nie` one of a foreigner; `wrong` with a letter that does not check."""
    number = rng.randint(10_000_000, 79_999_999)
    head, digits = "", f"{number:08d}"
    if "nie" in argument:
        first = rng.randint(0, 2)
        head, digits = "XYZ"[first], f"{number % 10_000_000:07d}"
        number = int(f"{first}{digits}")
    letter = _DNI_LETTERS[(number + ("wrong" in argument) * rng.randint(1, 22)) % 23]
    return head + digits + rng.choice(["", "-"] if head else ["", "-", " "]) + letter


def _ccc_digit(digits: str) -> str:
    weights = (1, 2, 4, 8, 5, 10, 9, 7, 3, 6)
    check = 11 - sum(int(d) * w for d, w in zip(digits, weights, strict=True)) % 11
    return str({10: 1, 11: 0}.get(check, check))


def iban(rng: Random, argument: str) -> str:
    """An IBAN of the country (ISO 13616, mod 97); `ES wrong` with check digits that do not check."""
    country, _, wrong = argument.partition(" ")
    if country == "ES":
        bank, account = _some(rng, "d", 8), _some(rng, "d", 10)
        bban = bank + _ccc_digit("00" + bank) + _ccc_digit(account) + account
    else:
        shape = _BBAN[country]
        letters = int(shape[1]) if shape[0] == "A" else 0
        bban = _some(rng, "A", letters) + _some(rng, "d", int(shape.rpartition("d")[2]))
    number = int("".join(str(int(c, 36)) for c in bban + country + "00"))
    check = 98 - number % 97
    if wrong:
        check = 2 + (check - 2 + rng.randint(1, 96)) % 97
    text = f"{country}{check:02d}{bban}"
    return " ".join(textwrap.wrap(text, 4)) if rng.random() < 0.5 else text


def card(rng: Random, argument: str) -> str:
    """A card number that passes Luhn (`wrong`: fails it), in groups or not."""
    prefix, length = rng.choice([("4", 16), (f"5{rng.randint(1, 5)}", 16), ("37", 15)])
    digits = [int(d) for d in prefix + _some(rng, "d", length - len(prefix) - 1)]
    total = sum(d if place % 2 else sum(divmod(2 * d, 10)) for place, d in enumerate(reversed(digits)))
    check = (-total + (argument == "wrong") * rng.randint(1, 9)) % 10
    text = "".join(map(str, digits)) + str(check)
    return rng.choice(["", " ", "-"]).join(textwrap.wrap(text, 4)) if length == 16 else text


def ip_address(rng: Random, kind: str) -> str:
    """An IPv4 address of a host: `private` (RFC 1918), `public`, or `documentation` (RFC 5737, loopback)."""
    last = rng.randint(2, 254)
    if kind == "documentation":
        networks = [f"192.0.2.{last}", f"198.51.100.{last}", f"203.0.113.{last}"]
        return rng.choice([*networks, "127.0.0.1", "0.0.0.0"])
    middle = f"{rng.randint(20, 250)}.{rng.randint(1, 254)}"
    private = ["10." + middle, f"192.168.{rng.randint(0, 254)}", f"172.{rng.randint(16, 31)}.7"]
    public = [f"{first}.{middle}" for first in (31, 46, 80, 83, 88, 95, 138, 185, 188, 213)]
    return f"{rng.choice(private if kind == 'private' else public)}.{last}"


def person(rng: Random, _: str = "") -> str:
    return f"{rng.choice(FIRST)}.{rng.choice(LAST)}"


MAKERS: dict[str, Maker] = {
    "pw": password,
    "crc": checksummed,
    "b64of": b64_of,
    "jwt": jwt,
    "pem": pem_body,
    "block": key_block,
    "pemline": lambda rng, argument: key_block(rng, argument).replace("\n", "\\n"),
    "dni": dni,
    "iban": iban,
    "card": card,
    "ip": ip_address,
    "person": person,
    "user": lambda rng, _: rng.choice(USERS),
    "word": lambda rng, _: rng.choice(WORDS),
    "project": lambda rng, _: rng.choice(PROJECTS),
    "email": lambda rng, _: f"{person(rng)}{rng.choice(['', rng.choice('123456789')])}@{rng.choice(DOMAINS)}",
    "internal": lambda rng, _: rng.choice(INTERNAL_HOSTS),
    "uuid": lambda rng, _: (
        "-".join(_some(rng, "hex", n) for n in (8, 4)) + f"-4{_some(rng, 'hex', 3)}-"
        f"{rng.choice('89ab')}{_some(rng, 'hex', 3)}-{_some(rng, 'hex', 12)}"
    ),
}
