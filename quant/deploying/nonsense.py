"""Whether a text is no text: what broken weights, scales or kernels make a server write."""

LONGEST_UNIT = 80
"""Characters that are looked at as one repeated unit."""
TIMES, SHORTEST = 8, 24
"""So often, and over so many characters, is without end; shorter runs end honest answers, as `...` does."""
MOST_UNREADABLE = 0.05
"""Share of characters that no one writes."""


def fault_in(text: str) -> str:
    """What is wrong with a text, empty where it could be one.

    A wrong answer in good words is none of these faults.
    """
    if not text.strip():
        return "it is empty"
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return "it is not valid Unicode"
    unreadable = sum(letter == "\ufffd" or not (letter.isprintable() or letter.isspace()) for letter in text)
    if unreadable > MOST_UNREADABLE * len(text):
        return f"{unreadable} of its {len(text)} characters are unreadable"
    for size in range(1, LONGEST_UNIT + 1):
        if _run(text, size) >= max(SHORTEST, TIMES * size):
            return f"it repeats {text[-size:][:20]!r} without end"
    return ""


def _run(text: str, size: int) -> int:
    """How many characters at the end of a text repeat one unit of that size."""
    run = min(size, len(text))
    while run < len(text) and text[-run - 1] == text[size - run - 1]:
        run += 1
    return run
