"""Figures on the examples that the installed scanners carry, and the long proofs of the scrubber."""

import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from dataset_builder import secrets_gate
from dataset_builder.sanitize import Sanitizer

pytestmark = pytest.mark.slow
KEY = b"k" * 32


def folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def credsweeper_samples() -> Iterator[str]:
    """The `samples` that rules of CredSweeper's config carry, where its release has them."""
    for rule in yaml.safe_load((folder("credsweeper") / "rules/config.yaml").read_text(encoding="utf-8")):
        yield from map(str, rule.get("samples") or ())


def docstring_samples() -> Iterator[str]:
    """What the comments and docstrings of detect-secrets' plugins show as examples of secrets."""
    for path in sorted((folder("detect_secrets") / "plugins").glob("*.py")):
        for found in re.finditer(
            r"#\s*(?:e\.g\.|example:?)\s*(.+)", path.read_text(encoding="utf-8"), re.IGNORECASE
        ):
            yield found[1]


@pytest.mark.parametrize("samples", [credsweeper_samples, docstring_samples])
def test_examples_that_scanners_carry(samples, capsys: pytest.CaptureFixture[str]) -> None:
    texts = list(samples())
    with capsys.disabled():
        if not texts:
            print(f"\n{samples.__name__}: the installed release carries none")
            return
        ours, alone = Sanitizer(KEY), Sanitizer(KEY, libraries=False)
        found = sum(bool(ours.find(text)) for text in texts), sum(bool(alone.find(text)) for text in texts)
        print(f"\n{samples.__name__}: {len(texts)} texts, found {found[0]}, by rules alone {found[1]}")
    assert found[0] >= found[1]


def test_a_line_of_fifty_megabytes() -> None:
    one = Sanitizer(KEY, known={"V": "Zafiro-99-verde"}, libraries=False)
    piece = 'key = valores[índice], token: abc; contraseña=gatito77 | x, {"a": 1} 0123456789 '
    line = piece * (50_000_000 // len(piece)) + "Zafiro-99-verde"
    start = time.process_time()
    found = one.find(line)
    seconds = time.process_time() - start
    print(f"50 MB in {seconds:.0f} s, {len(found)} findings")
    assert found[-1].rule == "known value" and seconds < 300


def test_the_gate_over_three_thousand_rows() -> None:
    shared = "".join(f'{{"name": "tool_{i}", "description": "Muestra la rama {i}"}}\n' for i in range(150))

    def row(i: int) -> str:
        own = (
            f"paso {n} de la fila {i}: la rama main-{n * i} tiene cambios sin confirmar" for n in range(60)
        )
        return shared + "\n".join(own)

    start = time.monotonic()
    hits = secrets_gate.scan(((f"train.jsonl:{i}", row(i)) for i in range(3000)), None, {"V": "Zafiro-99"})
    seconds = time.monotonic() - start
    print(f"the gate over 3,000 rows of {len(row(3000))} characters: {seconds:.0f} s")
    assert hits == [] and seconds < 120
