"""Personal data and addresses, each with the check that tells it from other numbers."""

import ipaddress
import re
from collections.abc import Iterator

from dataset_builder.sanitizing.spans import Span

PATTERNS = {
    "email": r"[A-Za-z0-9][A-Za-z0-9._%+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}",
    "ip": r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b",
    "ipv6": r"\b(?:[0-9a-fA-F]{1,4}:{1,2}){2,7}[0-9a-fA-F]{1,4}\b",
    "dni": r"\b(?:[0-9]{8}|[0-9]{2}\.[0-9]{3}\.[0-9]{3})[ -]?[A-Za-z]\b",
    "nie": r"\b[XYZxyz][ -]?[0-9]{7}[ -]?[A-Za-z]\b",
    "nuss": r"\b[0-9]{2}[ /-]?[0-9]{8}[ /-]?[0-9]{2}\b",
    "cif": r"\b[ABCDEFGHJNPQRSUVW][ -]?[0-9]{7}[ -]?[0-9A-J]\b",
    "ccc": r"\b[0-9]{4}[ -]?[0-9]{4}[ -]?[0-9]{2}[ -]?[0-9]{10}\b",
    "passport": r"(?i:pasaporte|passport)[^\n]{0,20}\b[A-Z]{2,3}[0-9]{6,7}\b",
    "ssn": r"(?:SSN|(?i:social security))[^\n0-9]{0,20}\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b",
    "iban": r"\b[A-Z]{2}[0-9]{2}(?:[ -]?[A-Z0-9]{4})+(?:[ -]?[A-Z0-9]{1,3})?\b",
    "card": r"\b[3-6][0-9]{3}(?:[0-9]{11,12}|(?:[ -][0-9]{4}){3}|[ -][0-9]{6}[ -][0-9]{5})\b",
    "phone": r"(?:\+|\b00)[1-9][0-9]{0,2}[ .-]?(?:\([0-9]{1,4}\)[ .-]?)?[0-9]{1,4}(?:[ .-]?[0-9]{2,4}){2,4}\b"
    r"|\b[6789][0-9]{2}(?:[ .-][0-9]{3}){2}\b|\b[6789][0-9]{2}(?:[ .-][0-9]{2}){3}\b"
    r"|\b9[0-9](?:[ .-][0-9]{3})(?:[ .-][0-9]{2}){2}\b|\b[6789][0-9]{8}\b",
}
"""Type -> RE2 pattern; the whole match is looked at by the function of the same name below."""
NOBODY = re.compile(
    r"(?i)^(?:no-?reply|do-?not-?reply|git|user|usuario|you|tu|name|nombre|someone|alguien|test|john\.?doe)@"
    r"|@(?:.*\.)?(?:example|ejemplo|test|invalid|localhost|local|localdomain|lan|internal|intranet|corp"
    r"|home|domain|dominio|yourdomain|tudominio|acme)(?:\.[a-z.]+)?$|@users\.noreply\.|\.(?:png|jpe?g|svg|gif|webp|js|ts|py|css|md|service|timer|socket)$"
)
LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
"""The control letter of a DNI is the one at its number modulo 23 (Orden INT/2058/2008)."""
PUBLIC_SERVICES = {"8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9", "208.67.222.222", "208.67.220.220"}
VERSION_BEFORE = re.compile(r"(?i)(?:\bv|version|versi[oó]n|release|[=~^<>]=|==|\bver\.?)[ :=\"']{0,3}$")
PHONE_BEFORE = re.compile(
    r"(?i)(?:tel[eé]?f?o?n?o?|m[oó]vil|phone|mobile|whats ?app|cell|llama\w*|call|fax|sms|contacto)"
    r"\W[^\n]{0,24}$"
)
NUMBER_BEFORE = re.compile(r"[\w.+-]$")


def spans(text: str, start: int, end: int) -> Iterator[Span]:
    """The piece of personal data that the text from `start` to `end` is, if it is one."""
    value, before, after = text[start:end], text[max(0, start - 40) : start], text[end : end + 2]
    for kind, test in TESTS.items():
        if test(value, before, after):
            if kind == "document":
                start = text.rindex(value.split()[-1], start, end)
            yield Span(start, end, kind, f"checked {kind}")
            return


def is_email(value: str, before: str, after: str) -> bool:
    """An address of somebody: not `noreply@`, `git@`, `user@example.com`; no part of an URL."""
    return (
        value.count("@") == 1
        and "." in value.rsplit("@", 1)[1]
        and value.rsplit(".", 1)[1].isalpha()
        and not NOBODY.search(value)
        and not re.search(r"://\S*$|@$", before)
        and not after.startswith((":", "/"))
        and not before.endswith("/")
    )


def is_ip(value: str, before: str, after: str) -> bool:
    """An IPv4 address of some machine: no version, no loopback, none of documentation (RFC 5737)."""
    if not re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", value) or NUMBER_BEFORE.search(before):
        return False
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        return False
    documented = any(address in net for net in DOCUMENTED)
    network = value.endswith(".0") or max(map(int, value.split("."))) < 10
    version = VERSION_BEFORE.search(before) or re.match(r"[.-]?\w", after)
    special = address.is_loopback or address.is_multicast or value.startswith("255.")
    return not (documented or network or version or special or value in PUBLIC_SERVICES)


def is_ipv6(value: str, before: str, after: str) -> bool:
    """An IPv6 address of some machine: no loopback, no range kept for documentation (RFC 3849)."""
    if NUMBER_BEFORE.search(before) or after.startswith(":") or ("::" not in value and value.count(":") != 7):
        return False
    try:
        address = ipaddress.IPv6Address(value)
    except ValueError:
        return False
    documented = address in ipaddress.IPv6Network("2001:db8::/32")
    return not (documented or address.is_multicast or address.is_loopback) and len(value) > 6


def is_dni(value: str, before: str, after: str) -> bool:
    """Spain's identity number with its control letter."""
    digits = re.sub(r"\D", "", value)
    shaped = re.fullmatch(r"[\d.]{8,10}[ -]?[A-Za-z]", value) is not None and len(digits) == 8
    if not shaped or NUMBER_BEFORE.search(before):
        return False
    return LETTERS[int(digits) % 23] == value[-1].upper() and len(set(digits)) > 2


def is_nie(value: str, before: str, after: str) -> bool:
    """Spain's foreigner's number: X, Y or Z stand for a leading 0, 1 or 2."""
    plain = re.sub(r"[ -]", "", value.upper())
    if not re.fullmatch(r"[XYZ]\d{7}[A-Z]", plain):
        return False
    number = int(str("XYZ".index(plain[0])) + plain[1:8])
    return LETTERS[number % 23] == plain[-1] and len(set(plain[1:8])) > 2


def is_iban(value: str, before: str, after: str) -> bool:
    """An account number whose ISO 7064 mod 97 check holds (ISO 13616)."""
    plain = re.sub(r"[ -]", "", value)
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", plain):
        return False
    return int("".join(str(int(letter, 36)) for letter in plain[4:] + plain[:4])) % 97 == 1


def is_card(value: str, before: str, after: str) -> bool:
    """A payment card number whose Luhn check holds (ISO/IEC 7812)."""
    digits = [int(digit) for digit in re.sub(r"[ -]", "", value) if digit.isdigit()]
    if not re.fullmatch(r"[\d -]{15,19}", value) or NUMBER_BEFORE.search(before) or len(set(digits)) < 4:
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    issuer = re.match(r"4|5[1-5]|2[2-7]|3[47]|6(?:011|5|4[4-9])|3[0689]|35", re.sub(r"\D", "", value))
    return len(digits) in (15, 16) and issuer is not None and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_nuss(value: str, before: str, after: str) -> bool:
    """Spain's social security number: the first ten digits modulo 97 are the last two."""
    digits = re.sub(r"\D", "", value)
    if not re.fullmatch(r"\d{2}[ /-]?\d{8}[ /-]?\d{2}", value) or NUMBER_BEFORE.search(before):
        return False
    named = re.search(r"(?i)seguridad social|nuss?\b|n\.?º? ?ss|afiliaci", before) or len(value) == 14
    number = (
        int(digits[:2] + digits[2:10].lstrip("0").rjust(7, "0")) if digits[2] == "0" else int(digits[:10])
    )
    return bool(named) and number % 97 == int(digits[10:])


def is_cif(value: str, before: str, after: str) -> bool:
    """Spain's number of a company, with its control digit or letter."""
    plain = re.sub(r"[ -]", "", value)
    if not re.fullmatch(r"[A-W]\d{7}[0-9A-J]", plain) or len(set(plain[1:8])) < 3:
        return False
    odd = sum(sum(divmod(2 * int(digit), 10)) for digit in plain[1:8:2])
    control = -(odd + sum(int(digit) for digit in plain[2:8:2])) % 10
    return plain[-1] in (str(control), "JABCDEFGHI"[control])


def is_ccc(value: str, before: str, after: str) -> bool:
    """Spain's former account number of 20 digits, with its two control digits."""
    digits = [int(digit) for digit in value if digit.isdigit()]
    if len(digits) != 20 or not re.fullmatch(r"[\d -]+", value) or NUMBER_BEFORE.search(before):
        return False
    weights = (1, 2, 4, 8, 5, 10, 9, 7, 3, 6)
    for control, part in ((digits[8], [0, 0, *digits[:8]]), (digits[9], digits[10:])):
        rest = 11 - sum(w * d for w, d in zip(weights, part, strict=True)) % 11
        if {10: 1, 11: 0}.get(rest, rest) != control:
            return False
    return len(set(digits)) > 3


def is_named(value: str, before: str, after: str) -> bool:
    """A number that the word before it names; only the word makes it match."""
    return bool(re.match(r"(?i)pasaporte|passport|SSN|social", value))


def is_phone(value: str, before: str, after: str) -> bool:
    """A telephone number: with its country code, in Spanish groups, or after a word such as `móvil`."""
    digits = re.sub(r"\D", "", value)
    if NUMBER_BEFORE.search(before) or re.match(r"[\w-]|\.\d", after) or not 9 <= len(digits) <= 15:
        return False
    if value[0] == "+" or (value.startswith("00") and PHONE_BEFORE.search(before)):
        return len(set(digits)) > 3
    return bool(re.fullmatch(r"[6789]\d{8}", digits)) and bool(
        PHONE_BEFORE.search(before) or (re.search(r"[ .-]", value) and value[0] in "679" and "." not in value)
    )


DOCUMENTED = [
    ipaddress.IPv4Network(net) for net in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "0.0.0.0/8")
]
TESTS = {
    "document": is_named,
    "iban": is_iban,
    "ccc": is_ccc,
    "nuss": is_nuss,
    "cif": is_cif,
    "card": is_card,
    "email": is_email,
    "ip": is_ip,
    "ipv6": is_ipv6,
    "nie": is_nie,
    "dni": is_dni,
    "phone": is_phone,
}
