"""The formal assistant on Mistral-7B: 100 iterations on a Mac, then one file for LM Studio."""

from core.profile import Lora, Profile, Train
from core.profiles import formal_smollm as small

PROFILE = Profile(
    name="formal_mistral",
    base="mistralai/Mistral-7B-v0.1",
    production="",
    chat_template="5b632dfec21e770e4f3e4808a00f60e298b848dc56b74f3824ee59327ed6a2af",
    template_file="mistral_instruct.jinja",
    backends=("mlx", "unsloth", "plain"),
    lora=Lora(rank=8, alpha=16, dropout=0.0, targets=("attention",), layers="last 4"),
    train=Train(lr=1e-4, schedule="constant", epochs=1, max_steps=100, max_length=1024, batch=1),
    data=small.DATA,
    families=small.FAMILIES,
    layers_prefix=small.LAYERS_PREFIX,
    vision_prefix=None,
    mtp_prefix=None,
    quant=None,
    gates=small.GATES,
)
