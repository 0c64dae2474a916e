"""The lab: a GPT of 0.2 million parameters over characters, made on a laptop's CPU; docs/minigpt.md."""

from core.profile import Lora, Profile, Train

PROFILE = Profile(
    name="minigpt",
    base="minigpt",
    embedded=True,
    production="",
    chat_template="",
    backends=(),
    lora=Lora(rank=1, alpha=4, dropout=0.0, targets=("mlp",)),
    train=Train(
        lr=2e-2,
        schedule="cosine",
        epochs=8,
        max_length=64,
        batch=16,
        dtype="float32",
        gradient_checkpointing=False,
    ),
    data=None,
    families={"attention": ("q", "k", "v", "o"), "mlp": ("up", "down")},
    layers_prefix="blocks",
    vision_prefix=None,
    mtp_prefix=None,
    quant=None,
)
