"""What is wrong with a checkpoint, as a line that says how to mend it."""

from dataclasses import dataclass

REMAKE = "make the checkpoint again: make quantize"


@dataclass(frozen=True)
class Fault:
    """Why a server would not serve the checkpoint as it is meant, and what mends it."""

    what: str
    mend: str = REMAKE
    served: bool = False
    """Whether vLLM serves it all the same, with wrong values."""

    def __str__(self) -> str:
        return f"{'wrong' if self.served else 'refused'}: {self.what}; {self.mend}"
