"""A checkpoint's weights in this process, loaded when they are first needed."""

import functools
from pathlib import Path
from typing import Any

from core import generate


class Weights:
    """What answers and losses are both taken of; nothing is loaded where both are known already."""

    def __init__(self, checkpoint: Path, dtype: str) -> None:
        self.checkpoint, self.dtype = checkpoint, dtype

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer, with its chat template."""
        return generate.load_tokenizer(self.checkpoint)

    @functools.cached_property
    def model(self) -> Any:
        """The whole model, in evaluation mode."""
        return generate.load_model(self.checkpoint, self.dtype)
