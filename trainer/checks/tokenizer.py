"""The checkpoint's chat template and special tokens, read without transformers."""

import hashlib
from pathlib import Path

from core.errors import UserError
from core.profile import Profile
from trainer.checks.check import Check
from trainer.checks.checkpoint import mend, read_json

TEMPLATE = "chat_template.jinja"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
MARKUP = (
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)


def read_template(base: Path) -> str:
    """The chat template, from its file or from the tokenizer's config; UserError where there is none."""
    if (base / TEMPLATE).exists():
        try:
            # As bytes: reading as text would translate line ends and so change the digest.
            return (base / TEMPLATE).read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{base / TEMPLATE}: not UTF-8") from None
    template = read_json(base / TOKENIZER_CONFIG).get("chat_template")
    if not isinstance(template, str):
        raise UserError(f"{base}: no {TEMPLATE}, and no chat_template in {TOKENIZER_CONFIG}")
    return template


def check_template(profile: Profile, base: Path) -> Check:
    """The template's sha256 against that of the template which production renders with."""
    try:
        found = hashlib.sha256(read_template(base).encode()).hexdigest()
    except UserError as error:
        return Check("chat template", "fail", str(error), mend(profile, base))
    if found == profile.chat_template:
        return Check("chat template", "ok", f"sha256 {found[:12]}")
    expected = f"expected {profile.chat_template[:12]} (chat_template in core/profiles/{profile.name}.py)"
    advice = f"{expected}: {mend(profile, base)}"
    return Check("chat template", "fail", f"sha256 {found[:12]}", advice)


def check_tokens(profile: Profile, base: Path) -> Check:
    """The end-of-turn token and the markup that the chat template writes are one token each.

    Only an added token is surely one: text of the plain vocabulary is split before it is looked up.
    """
    try:
        template = read_template(base)
    except UserError:
        return Check("tokenizer", "warn", "not looked at", "mend the chat template first")
    try:
        eos = read_json(base / TOKENIZER_CONFIG).get("eos_token")
        added = {token["content"] for token in read_json(base / TOKENIZER)["added_tokens"]}
    except UserError as error:
        return Check("tokenizer", "fail", str(error), mend(profile, base))
    except (KeyError, TypeError):
        return Check("tokenizer", "fail", f"{TOKENIZER}: no added_tokens", mend(profile, base))
    eos = eos["content"] if isinstance(eos, dict) else eos
    if eos is None or eos not in template:
        advice = f"expected the token that ends a turn in the chat template: {mend(profile, base)}"
        return Check("tokenizer", "fail", f"eos_token {eos}", advice)
    markup = [token for token in MARKUP if token in template]
    split = [token for token in dict.fromkeys((*markup, eos)) if token not in added]
    if split:
        advice = f"each must be one of the added_tokens of {TOKENIZER}: {mend(profile, base)}"
        return Check("tokenizer", "fail", f"not a token: {' '.join(split)}", advice)
    return Check("tokenizer", "ok", f"eos {eos}, {len(markup)} markup tokens")
