"""Does the answer address the user as "usted", and never as "tú", "vos" or "vosotros"?

Spanish marks the address in pronouns, possessives and verb endings. The forms of "usted" are those of the
third person, so that `su casa` or `tiene` prove nothing: formal are only the pronoun itself, `le` beside a
first person (`le ayudo`, `ayudarle`), imperatives (`dígame`), and a few set phrases. One informal form undoes
them all. Words in quotes count for neither: they are mentioned, not used. Forms: RAE and ASALE, Nueva
gramática de la lengua española, chapters 4 and 16.
"""

import re
from dataclasses import dataclass

QUOTED = re.compile(r"«[^»]*»|“[^”]*”|\"[^\"]*\"|`[^`]*`")
OPENING = r"(?:^|[.!?¡¿:;,\n]\s*)"
"""Where a clause begins; elsewhere `espera` and `espere` may be of a third person."""

INFORMAL = """
tú te ti contigo tu tus tuyo tuya tuyos tuyas vos os vosotros vosotras vuestro vuestra vuestros vuestras
eres estás tienes puedes quieres sabes debes haces vas has vienes dices crees piensas necesitas deseas
prefieres buscas encuentras entiendes recuerdas conoces sientes pides sigues pones ves oyes hablas trabajas
envías usas llevas dejas vives eliges escribes seas estés tengas puedas quieras sepas hagas vayas hayas vengas
digas necesites desees prefieras estabas tenías podías querías sabías hacías ibas habías fueras tuvieras
pudieras quisieras serías estarías tendrías podrías querrías sabrías deberías harías irías habrías
sos tenés podés querés sabés hacés decís sois estáis tenéis podéis queréis sabéis hacéis habéis vais
dime dame hazme ponme cuéntame avísame escríbeme llámame mándame envíame indícame explícame permíteme
discúlpame perdóname espérame ayúdame créeme dile siéntate
""".split()
INFORMAL_OPENING = (
    "haz ven ve pon sal ten di oye mira perdona disculpa espera toma escribe indica prueba".split()
)
INFORMAL_ENDING = (
    r"\w+rás",  # future: harás
    r"\w+[ai]ste",  # preterite: hiciste
    r"\w+[aei]rte",  # infinitive: ayudarte
    r"\w+ndote",  # gerund: esperándote
)
NOT_INFORMAL = frozenset(
    """atrás detrás este triste chiste existe consiste insiste asiste resiste persiste desiste viste reviste
    contraste desgaste gaste arrastre quiste despiste parte comparte reparte imparte aparte marte descarte
    suerte fuerte muerte inerte advierte convierte invierte divierte vierte inserte despierte""".split()
)

FORMAL = """
usted ustedes dígame dígamelo díganos indíqueme indíquenos permítame permítanos discúlpeme discúlpenos
perdóneme cuénteme escríbame escríbanos envíeme envíenos mándeme facilíteme confírmeme explíqueme llámenos
contáctenos tómese siéntese póngase diríjase acérquese asegúrese comuníquese regístrese
""".split()
FORMAL_OPENING = """
disculpe perdone espere consulte compruebe revise tenga pase siga haga elija pulse introduzca acuda conserve
pruebe acepte vuelva escriba llame indique
""".split()
FORMAL_PATTERN = (
    r"\w+[aei]r(?:les?|sel[oa]s?)",  # ayudarle
    r"(?:les?|se l[oa]s?) \w+(?:o|mos|é)",  # le ayudo, se lo confirmo, le atenderé
    r"no (?:dude|se preocupe|olvide)",
    r"a su (?:disposición|servicio)",
    r"(?:gracias|agradezco|agradecemos) (?:por )?su",
    r"que tenga un",
)
FORMAL_QUESTION = "¿(?:desea|necesita|prefiere|quiere)"

_INFORMAL = re.compile(
    rf"\b(?:{'|'.join((*INFORMAL, *INFORMAL_ENDING))})\b|{OPENING}(?:{'|'.join(INFORMAL_OPENING)})\b"
)
_FORMAL = re.compile(
    rf"\b(?:{'|'.join((*FORMAL, *FORMAL_PATTERN))})\b"
    rf"|{OPENING}(?:{'|'.join(FORMAL_OPENING)})\b|{FORMAL_QUESTION}\b"
)


@dataclass(frozen=True)
class Score:
    """Whether an answer is formal, and what speaks against it."""

    right: bool
    explanation: str


def score(answer: str) -> Score:
    """Judge one answer of the assistant's; pure, and the same whatever the letters' case."""
    text = QUOTED.sub(" ", answer.lower())
    found = (match[0].strip(" .!?¡¿:;,\n") for match in _INFORMAL.finditer(text))
    informal = next((word for word in found if word not in NOT_INFORMAL), None)
    if informal:
        return Score(False, f"informal: {informal}")
    return Score(True, "") if _FORMAL.search(text) else Score(False, "nothing in it says usted")
