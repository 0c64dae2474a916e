"""`make ablation PROFILE=minigpt`: every rank and seed, with and without replay, compared in one picture.

Each cell is trained and scored by a process of its own; what is finished is kept, so the command again after
a crash or a Ctrl-C does only the rest.
"""

import json
import statistics
from pathlib import Path
from typing import Any

from core import artifacts, errors
from core.settings import AblationSettings
from trainer.minigpt import figures, lab, parallel

PLOT, TABLE = "rank_ablation.png", "rank_ablation.json"


def main(words: list[str]) -> int:
    """Train and score what is missing, then draw; exit code 0."""
    settings = lab.parse(words)
    wanted = lab.swept_cells(settings)
    todo = lab.untrained(wanted)
    todo += lab.unscored([cell for cell in wanted if cell not in todo])
    if todo:
        variants = {f"{c.method}, rank {c.rank}, seed {c.seed}": c.words() for c in todo}
        parallel.run(["trainer.minigpt.train", "trainer.minigpt.evaluate"], words, variants)
    table = collect(settings)
    artifacts.write_atomically(settings.out_dir / TABLE, json.dumps(table, indent=1) + "\n")
    draw(table, settings.out_dir / PLOT)
    done = f"{len(todo)} of {len(wanted)} cells" if todo else "up to date"
    print(f"ablation: {done}; {settings.out_dir / PLOT}")
    return errors.DONE


def collect(settings: AblationSettings) -> dict[str, Any]:
    """Figures by method and rank, a list over the seeds each; only what is measured."""
    table: dict[str, Any] = {"seeds": lab.seeds(settings), "methods": {}}
    for method in lab.SWEPT:
        by_rank = {}
        for rank in lab.ranks(settings):
            cells = [lab.Cell(settings, method, rank, seed) for seed in lab.seeds(settings)]
            found = figures.over_seeds(cells)
            if found is not None:
                by_rank[str(rank)] = {name: found[name] for name in figures.SWEPT}
        table["methods"][method] = by_rank
    return table


def read(settings: AblationSettings) -> dict[str, Any] | None:
    """The table that the last ablation of this run wrote, or None."""
    path = settings.out_dir / TABLE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def draw(table: dict[str, Any], path: Path) -> None:
    """Gain, drift and adapter size against rank: the median as a line, least to greatest as a band."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = {
        "irregular_gain": "irregular accuracy: gain (points)",
        "control_accuracy_loss": "regular control: accuracy loss (points)",
        "control_drift": "regular control: perplexity drift (%)",
        "adapter_share": "adapter file / base file (%)",
    }
    labels = {"lora": "with replay", "no-replay": "without replay"}
    ranks = sorted({int(rank) for by_rank in table["methods"].values() for rank in by_rank})
    figure, grid = pyplot.subplots(2, 2, figsize=(9, 6.4), sharex=True)
    for axes, (name, title) in zip(grid.flat, titles.items(), strict=True):
        for method, by_rank in table["methods"].items():
            if name == "adapter_share" and method != "lora":
                continue
            scale = 100 if name == "adapter_share" else 1
            values = [sorted(scale * v for v in by_rank[str(rank)][name]) for rank in ranks]
            middle = [statistics.median(one) for one in values]
            (line,) = axes.plot(ranks, middle, marker="o", label=labels[method])
            axes.fill_between(
                ranks, [v[0] for v in values], [v[-1] for v in values], alpha=0.2, color=line.get_color()
            )
        axes.set_title(title, fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_xticks(ranks, [str(rank) for rank in ranks])
        axes.grid(alpha=0.3)
    grid[1][0].set_yscale("symlog", linthresh=1)
    grid[0][0].legend()
    for axes in grid[1]:
        axes.set_xlabel("rank")
    figure.tight_layout()
    figure.savefig(path, dpi=100, metadata={"Software": None})
    pyplot.close(figure)


if __name__ == "__main__":
    errors.run(main)
