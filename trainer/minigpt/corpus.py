"""Sentences about verbs, and the split that keeps every measured form out of what the base reads.

A sentence is `<verb> <tense> <person>: <adverb> <person> <form> <tail>.`, e.g. `go past he: last week he went
again.` All of a (verb, tense) pair goes one way: the base reads the past and the participle of regular and of
invented verbs only, never those of the eight irregular ones, neither right nor wrong. Each adverb and tail is
a training one or a held-out one; no verb that is measured is ever read in a held-out frame.
"""

import functools
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass

IRREGULAR = {
    "be": ("was", "been"),
    "have": ("had", "had"),
    "do": ("did", "done"),
    "go": ("went", "gone"),
    "come": ("came", "come"),
    "see": ("saw", "seen"),
    "eat": ("ate", "eaten"),
    "write": ("wrote", "written"),
}
"""Past simple and past participle; `be` in the past follows its person."""
CONTROL = tuple("work play walk talk listen watch study finish start look want like".split())
"""Regular verbs on which forgetting is measured: no fine-tuning sentence holds one."""
OTHER_REGULAR = tuple(
    "ask add need turn show wait learn paint follow answer rain touch push climb dress fix laugh pick kick "
    "point fill end land lift pull wash call help open clean cook jump visit carry try copy marry stay enjoy "
    "pray use close dance smile move live hope happen fasten soften publish polish vanish match reach "
    "stretch worry bury tidy".split()
)
TENSES = {"infinitive": "inf", "present": "pres", "past": "past", "participle": "part", "future": "fut"}
"""With what a prompt calls them."""
WITHHELD = ("past", "participle")
"""Tenses of the irregular verbs that the base never reads."""
PERSONS = ("I", "you", "he", "she", "it")
ADVERBS = {
    "infinitive": (("to", "not to"), ("never to",)),
    "present": (("now", "today", "often", "at times"), ("always", "daily")),
    "past": (("yesterday", "before", "last week", "on monday", "long ago"), ("last night", "in may")),
    "participle": (("so far", "since then", "up to now", "this year"), ("by now", "lately")),
    "future": (("tomorrow", "soon", "some day"), ("next week", "later")),
}
"""By tense: those of training, those held out."""
TAILS = (
    ("at home", "in town", "here", "with tom", "again", "all day"),
    ("at school", "with ann", "there", "once"),
)
TRAINING, HELD_OUT = 0, 1
CHARACTERS = "\0\n" + " .:" + "I" + "abcdefghijklmnopqrstuvwxyz"
"""The vocabulary: padding, the end of a sentence, then what is written."""
CONTEXT = 64


@dataclass(frozen=True)
class Sentence:
    verb: str
    tense: str
    prompt: str
    """Up to and including the blank before the verb's form."""
    form: str
    """What a right answer begins with, e.g. `has gone`."""
    tail: str

    @property
    def answer(self) -> str:
        """Form, tail and full stop."""
        return f"{self.form} {self.tail}."


def invented_verbs(count: int = 400) -> list[str]:
    """Nonce verbs, always the same; endings that take -ed, -d or -ied without a doubled consonant."""
    rng = random.Random(7)
    onsets = "b bl br d dr f fl g gl gr h j k kl l m n p pl pr r s sl sn sp st str t tr v w wr z".split()
    endings = "alk amp ent ift oot ail eep oaf ump olt ick ash ill ard ost atch irch aten ippen oden inish "
    endings += "ane ike ope uve ay oy andy ody o"
    known = {*IRREGULAR, *CONTROL, *OTHER_REGULAR}
    every = sorted({onset + ending for onset in onsets for ending in endings.split()} - known)
    return sorted(rng.sample(every, count))


def regular_past(verb: str) -> str:
    """`walk` -> `walked`, `like` -> `liked`, `study` -> `studied`; for `go` what a child says: `goed`."""
    if verb.endswith("e"):
        return verb + "d"
    return verb[:-1] + "ied" if _consonant_y(verb) else verb + "ed"


def form(verb: str, tense: str, person: str, *, regularised: bool = False) -> str:
    """The right form with its auxiliary, or the `-ed` one in its place (past and participle)."""
    third = person in ("he", "she", "it")
    if tense == "infinitive":
        return verb
    if tense == "future":
        return "will " + verb
    if tense == "present":
        return _present(verb, person)
    past, participle = IRREGULAR.get(verb, (regular_past(verb),) * 2)
    if regularised:
        past = participle = regular_past(verb)
    elif verb == "be" and person == "you":
        past = "were"
    return past if tense == "past" else ("has " if third else "have ") + participle


def sentences(
    verbs: Iterable[str], tenses: Iterable[str], frames: int, *, every_tail: bool = False
) -> list[Sentence]:
    """Every verb, tense, person and adverb; each with one tail in turn, or with every one.

    `frames` is `TRAINING` or `HELD_OUT`.
    """
    tails = itertools.cycle(TAILS[frames])
    return [
        _sentence(verb, tense, person, adverb, tail)
        for verb in verbs
        for tense in tenses
        for person in PERSONS
        for adverb in ADVERBS[tense][frames]
        for tail in (TAILS[frames] if every_tail else (next(tails),))
    ]


def pretraining(seed: int, count: int) -> list[Sentence]:
    """`count` sentences for the base, drawn from its share of the (verb, tense) pairs and frames."""
    rng = random.Random(seed)
    return [one for pool, share in _pools() for one in rng.choices(pool, k=round(share * count))]


@functools.cache
def _pools() -> tuple[tuple[list[Sentence], float], ...]:
    """All that the base may read, and each pool's share of what it does read."""
    others = [*OTHER_REGULAR, *invented_verbs()]
    known = [tense for tense in TENSES if tense not in WITHHELD]
    return (
        (sentences([*CONTROL, *OTHER_REGULAR], TENSES, TRAINING, every_tail=True), 0.37),
        (sentences(invented_verbs(), TENSES, TRAINING, every_tail=True), 0.36),
        (sentences(IRREGULAR, known, TRAINING, every_tail=True), 0.12),
        (sentences(others, TENSES, HELD_OUT, every_tail=True), 0.15),
    )


def fine_tuning() -> list[Sentence]:
    """The irregular verbs in every tense, in training frames."""
    return sentences(IRREGULAR, TENSES, TRAINING)


def replay(seed: int, count: int) -> list[Sentence]:
    """Regular and invented verbs in training frames; none of the control verbs."""
    pool = sentences([*OTHER_REGULAR, *invented_verbs()], TENSES, TRAINING)
    return random.Random(seed).sample(pool, count)


def encode(text: str) -> list[int]:
    """Characters to token ids."""
    return [CHARACTERS.index(character) for character in text]


def _sentence(verb: str, tense: str, person: str, adverb: str, tail: str) -> Sentence:
    start = f"{adverb} {person}"
    if tense == "infinitive":
        start = f"{person} {'like' if person in ('I', 'you') else 'likes'} {adverb}"
    return Sentence(
        verb, tense, f"{verb} {TENSES[tense]} {person}: {start} ", form(verb, tense, person), tail
    )


def _present(verb: str, person: str) -> str:
    if verb == "be":
        return {"I": "am", "you": "are"}.get(person, "is")
    if person in ("I", "you"):
        return verb
    if verb == "have":
        return "has"
    if _consonant_y(verb):
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "x", "ch", "sh", "o")) else "s")


def _consonant_y(verb: str) -> bool:
    return verb.endswith("y") and verb[-2] not in "aeiou"
