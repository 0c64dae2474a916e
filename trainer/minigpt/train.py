"""`make train PROFILE=minigpt`: for each seed the irregular verbs by each of METHODS, at LORA_RANK.

An adapter is never overwritten by one of other settings: the run stops and names both ways on.
"""

from functools import partial

from core import artifacts, errors
from core.progress import Progress
from trainer.minigpt import lab, parallel
from trainer.minigpt.lab import Cell


def main(words: list[str]) -> int:
    """Train what is missing; exit code 0. UserError without a base, or over another's adapter."""
    settings = lab.parse(words)
    todo = lab.untrained(lab.cells(settings))
    if not todo:
        print(f"train: up to date ({settings.out_dir}, rank {settings.lora_rank}, seeds {settings.seeds})")
    elif len(todo) == 1:
        make(todo[0])
    else:
        parallel.run(["trainer.minigpt.train"], words, {f"{c.method} {c.seed}": c.words() for c in todo})
    return errors.DONE


def make(cell: Cell) -> None:
    """Train one adapter on its seed's base and write it in PEFT's layout."""
    from trainer.minigpt import base, finetune, lora, model, qlora

    model.one_thread()
    settings, gpt = cell.settings, base.load(cell.base_dir)
    plan = finetune.Plan(
        epochs=settings.epochs,
        batch=settings.batch_size,
        lr=settings.learning_rate,
        replay=cell.method != "no-replay",
    )
    if cell.method == "qlora":
        qlora.quantize_base(gpt)
    inputs = {"base": artifacts.as_input(cell.base_dir, artifacts.require(cell.base_dir, "base"))}
    with artifacts.create(
        cell.adapter_dir,
        kind="adapter",
        profile=settings.profile.name,
        run=settings.run,
        settings=cell.recorded(),
        inputs=inputs,
    ) as draft:
        progress = Progress(
            f"train {cell.method} rank {cell.rank} seed {cell.seed} (steps)", finetune.steps_of(plan)
        )
        insert = partial(
            lora.wrap,
            targets=settings.profile.target_paths,
            r=cell.rank,
            alpha=settings.lora_alpha,
            dropout=settings.lora_dropout,
        )
        result = finetune.train(
            gpt, insert, cell.seed, plan, lambda loss: progress.step(note=f"loss {loss:.3f}")
        )
        progress.close()
        lora.save(gpt, draft.path)
        base.write_losses(draft.path, result.losses)
        draft.counts = {
            "trainable_parameters": sum(t.numel() for t in lora.state(gpt).values()),
            "bytes_held": result.bytes_held,
        }
    print(f"train: {cell.method}, rank {cell.rank}, seed {cell.seed}: adapter at {cell.adapter_dir}")


if __name__ == "__main__":
    errors.run(main)
