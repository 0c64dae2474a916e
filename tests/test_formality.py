"""The checker of formality, on sentences written for it: none of them is in the examples."""

import json

import pytest

from eval.gates.formality import score
from tests.conftest import ROOT

FORMAL = """
¿Cómo está usted?
Pase, por favor, y siéntese.
Le llamo mañana a primera hora.
Estaremos encantados de recibirle.
Se lo envío hoy.
No se preocupe, enseguida lo arreglo.
Quedo a su disposición.
¿Desea algo más?
Disculpe, no le había visto.
Su jefe dice que eres buena persona, ¿lo sabía usted?
Buenos días, señora. Permítame su abrigo.
La palabra «tú» no la usaré con usted.
Ustedes dirán en qué les ayudamos.
USTED TIENE RAZÓN.
Que tenga un buen viaje.
Consulte el plazo en la página.
Les rogamos que vuelvan mañana; no dude en escribir.
""".strip().splitlines()
FORMAL.remove("Su jefe dice que eres buena persona, ¿lo sabía usted?")
INFORMAL = """
¿Cómo estás?
Pasa y siéntate.
Te llamo mañana.
¿En qué puedo ayudarte?
Usted tiene razón, pero te lo dije.
Su jefe dice que eres buena persona, ¿lo sabía usted?
Dime qué quieres.
¿Vos qué pensás?
Si tenéis dudas, llamad.
Podrás recogerlo el lunes.
¿Qué hiciste ayer?
Estoy esperándote.
Tu pedido llega hoy. Le atiendo con gusto.
Espera un momento, por favor. Le paso con un compañero.
Oye, ¿usted es de aquí?
El regalo es para ti.
""".strip().splitlines()
NEITHER = """
Hello, how can I help you?
La capital de Francia es París.
Lo siento, no lo sé.
Su casa está lejos.
Tengo suerte: este tren existe y viste de rojo.
El cliente espera y la tienda vende compras y sales de baño.

Ella dice que su hermano es feliz.
Parte del arte está atrás.
""".strip("\n").splitlines()


@pytest.mark.parametrize("answer", FORMAL)
def test_usted_is_seen(answer: str) -> None:
    assert score(answer).right, score(answer)


@pytest.mark.parametrize("answer", INFORMAL)
def test_one_informal_form_is_enough(answer: str) -> None:
    found = score(answer)
    assert not found.right
    assert found.explanation.startswith("informal: ")


@pytest.mark.parametrize("answer", NEITHER)
def test_without_any_address_nothing_is_formal(answer: str) -> None:
    assert score(answer).explanation == "nothing in it says usted"


def test_the_examples_are_formal_throughout_and_long_enough() -> None:
    sizes = {}
    for name in ("conversations", "held_out"):
        lines = (ROOT / f"examples/formal/{name}.jsonl").read_text(encoding="utf-8").splitlines()
        answers = []
        for line in lines:
            row = json.loads(line)
            answers += [m["content"] for m in row.get("messages", []) if m["role"] == "assistant"]
            answers += [row["completion"]] if "completion" in row else []
        assert [answer for answer in answers if not score(answer).right] == []
        sizes[name] = len(lines)
    assert sizes["conversations"] >= 150
    assert sizes["held_out"] >= 60
