"""How the embedded base is made: corpus, tokenizer, model, pre-training, MTP head."""

from pathlib import Path

SHIPPED = Path(__file__).parent / "checkpoint"
"""The trained weights and BPE that `make base` copies."""
