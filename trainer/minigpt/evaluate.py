"""`make eval PROFILE=minigpt`: each adapter against its base on held-out frames, with sizes and memory."""

import copy
import json
from typing import TYPE_CHECKING, Any

from core import artifacts, errors
from trainer.minigpt import base, lab, parallel
from trainer.minigpt.lab import Cell

if TYPE_CHECKING:
    from trainer.minigpt.model import MiniGPT

SCORES = "scores.json"


def main(words: list[str]) -> int:
    """Measure what is not measured yet; exit code 0. UserError where an adapter is missing."""
    settings = lab.parse(words)
    todo = lab.unscored(lab.cells(settings))
    if not todo:
        print(f"eval: up to date ({settings.out_dir}, rank {settings.lora_rank}, seeds {settings.seeds})")
    elif len(todo) == 1:
        make(todo[0])
    else:
        parallel.run(["trainer.minigpt.evaluate"], words, {f"{c.method} {c.seed}": c.words() for c in todo})
    return errors.DONE


def make(cell: Cell) -> None:
    """Score base and adapter of one cell and write `scores.json`."""
    from trainer.minigpt import lora, model, qlora, score

    model.one_thread()
    inputs = lab.scored_inputs(cell)
    with artifacts.create(
        cell.scores_dir,
        kind="scores",
        profile=cell.settings.profile.name,
        run=cell.settings.run,
        settings={},
        inputs=inputs,
    ) as draft:
        plain = base.load(cell.base_dir)
        adapted = copy.deepcopy(plain)
        found: dict[str, Any] = {"base": score.score(plain)}
        if cell.method == "qlora":
            qlora.quantize_base(adapted)
            found["nf4"] = score.score(adapted) | nf4_facts(plain, adapted)
        lora.load(adapted, cell.adapter_dir)
        found["adapted"] = score.score(adapted)
        found["answers"] = answers(plain, adapted)
        found["sizes"] = sizes(cell, plain)
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (draft.path / SCORES).write_text(text, encoding="utf-8")
    before, after = (100 * found[name]["irregular"] for name in ("base", "adapted"))
    print(
        f"eval: {cell.method}, rank {cell.rank}, seed {cell.seed}: irregular {before:.1f} -> {after:.1f} %, "
        f"control {100 * found['adapted']['control']:.1f} %"
    )


def read(cell: Cell) -> dict[str, Any] | None:
    """What was measured of a cell, or None where nothing was."""
    if artifacts.read_manifest(cell.scores_dir) is None:
        return None
    return json.loads((cell.scores_dir / SCORES).read_text(encoding="utf-8"))


def answers(plain: "MiniGPT", adapted: "MiniGPT") -> list[dict[str, str]]:
    """What base and adapted model write for one past of each irregular verb and of three control verbs."""
    from trainer.minigpt import corpus, score

    shown = []
    for verb in (*corpus.IRREGULAR, *corpus.CONTROL[:3]):
        one = next(s for s in score.held_out([verb]) if s.tense == "past" and " he:" in s.prompt)
        shown.append(
            {
                "prompt": one.prompt,
                "right": one.form,
                "base": score.greedy(plain, one),
                "adapted": score.greedy(adapted, one),
            }
        )
    return shown


def sizes(cell: Cell, plain: "MiniGPT") -> dict[str, Any]:
    """Bytes of both files; parameters; bytes held while training, measured and by formula."""
    from trainer.minigpt import lora, memory

    adapter = artifacts.require(cell.adapter_dir, "train PROFILE=minigpt")
    checkpoint = artifacts.require(cell.base_dir, "base PROFILE=minigpt")
    parameters = sum(p.numel() for p in plain.parameters())
    linear = memory.linear_shapes(plain)
    weights = sum(rows * columns for rows, columns in linear.values())
    targets = cell.settings.profile.target_paths
    trained = memory.adapter(
        cell.rank, [shape for path, shape in linear.items() if path.rsplit(".", 1)[1] in targets]
    )
    return {
        "base_file": checkpoint["files"][base.WEIGHTS]["bytes"],
        "adapter_file": adapter["files"][lora.WEIGHTS]["bytes"],
        "parameters": parameters,
        "trained": {"formula": trained, "measured": adapter["counts"]["trainable_parameters"]},
        "full": {"formula": memory.full(parameters), "measured": checkpoint["counts"]["bytes_held"]},
        "adapter": {
            "formula": memory.qlora(parameters, trained, weights)
            if cell.method == "qlora"
            else memory.lora(parameters, trained),
            "measured": adapter["counts"]["bytes_held"],
        },
        "linears": {"float32": weights * memory.FLOAT, "nf4": memory.nf4(weights)},
    }


def nf4_facts(plain: "MiniGPT", quantised: "MiniGPT") -> dict[str, Any]:
    """Of an NF4 base: bytes of its linear weights, and how far its logits are from three others'.

    From the float32 base's (mean |difference| over mean |logit|), from those of a float32 model with the
    unpacked weights, and from bitsandbytes' layers' (greatest |difference| each).
    """
    import torch

    from trainer.minigpt import batches, corpus, qlora, score

    ids, _ = batches.rows(score.held_out(corpus.CONTROL), "answer")
    packed = [m for m in quantised.modules() if isinstance(m, qlora.NF4Linear)]
    with torch.no_grad():
        exact, ours = plain(ids), quantised(ids)
        unpacked = qlora.dequantize_base(copy.deepcopy(quantised))(ids)
        theirs = qlora.bitsandbytes_base(copy.deepcopy(plain))(ids) if qlora.has_bitsandbytes() else None
    return {
        "bytes": sum(m.codes.nbytes + m.scales.nbytes for m in packed),
        "logits_from_float32": ((ours - exact).abs().mean() / exact.abs().mean()).item(),
        "logits_from_unpacked": (ours - unpacked).abs().max().item(),
        "logits_from_bitsandbytes": None if theirs is None else (ours - theirs).abs().max().item(),
    }


if __name__ == "__main__":
    errors.run(main)
