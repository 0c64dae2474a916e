"""The tiny base's tokenizer: byte-level BPE, Qwen's special tokens, and whole phrases as single tokens.

The phrases are the chat template's boilerplate and the JSON around a tool's schema: as single tokens they
make a prompt three times shorter, which is what lets a laptop train on it. The template's own phrases are
cut from the installed template when the base is made, so no text of it is stored with the project.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
SCHEMA = (
    '{"type": "function", "function": {"name": "mcp__',
    '", "description": "',
    '", "parameters": {"properties": {"',
    '": {"type": "string"}',
    '": {"type": "integer"}',
    '": {"items": {"type": "string"}, "minItems": 1, "type": "array"}',
    '": {"description": "',
    '", "type": "string"}',
    '": {"default": ',
    ', "type": "integer"}',
    '": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null}',
    '": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "description": "',
    '}, "required": ["',
    '"], "type": "object"}}}',
    "<function=mcp__",
    "<parameter=",
    "</function>",
    "</parameter>",
)
# Qwen's own splitting rule (tiktoken pattern of Qwen2 and later): letters with a leading space, single
# digits, punctuation, line ends.
SPLIT = r" ?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s*[\r\n]+|\s+(?!\S)|\s+"
LONGEST_PROSE = 25


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE of `vocab_size` entries; deterministic for the same texts."""
    bare = Tokenizer(models.BPE())
    _set_rules(bare)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=5,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    markup = re.compile("|".join(map(re.escape, sorted(SPECIAL + MARKUP + SCHEMA, key=len, reverse=True))))
    bare.train_from_iterator((markup.sub("\n", text) for text in texts), trainer)
    return bare


def save_bpe(bare: Tokenizer, path: Path) -> None:
    """Store vocabulary and merges alone."""
    model = json.loads(bare.to_str())["model"]
    path.write_text(
        json.dumps({"vocab": model["vocab"], "merges": model["merges"]}, ensure_ascii=False) + "\n"
    )


def load_bpe(path: Path) -> Tokenizer:
    """The tokenizer that `save_bpe` stored."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    bare = Tokenizer(models.BPE(vocab=stored["vocab"], merges=[tuple(m) for m in stored["merges"]]))
    _set_rules(bare)
    return bare


def assemble(bare: Tokenizer, template: str) -> Any:
    """The complete tokenizer: BPE, special tokens, markup, schema phrases, the template's phrases."""
    bare.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    phrases = (*MARKUP, *SCHEMA, *template_phrases(template))
    bare.add_tokens([AddedToken(token, special=False, normalized=False) for token in phrases])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bare,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=4096,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = template
    return tokenizer


def template_phrases(template: str) -> list[str]:
    """The long constant texts that the template writes around the tools, cut at the markup tokens."""
    literals = re.findall(r"\{\{-? ?(['\"])((?:(?!\1).)*)\1 ?\}\}", template)
    prose = [text.replace("\\n", "\n") for _, text in literals if len(text) > 2 * LONGEST_PROSE]
    markup = re.compile("|".join(map(re.escape, SPECIAL + MARKUP + SCHEMA)))
    parts = [part for text in prose for part in markup.split(text) if len(part) > LONGEST_PROSE]
    return list(dict.fromkeys(parts))


def _set_rules(bare: Tokenizer) -> None:
    bare.normalizer = normalizers.NFC()
    bare.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bare.decoder = decoders.ByteLevel()
