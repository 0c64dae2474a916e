"""`make report PROFILE=minigpt`: what the lab measured, as report.json, report.md and one HTML file."""

import json
from typing import Any

from core import artifacts, errors
from core.errors import UserError
from core.settings import AblationSettings
from trainer.minigpt import ablation, evaluate, figures, lab, page

KEYS = ("irregular_gain", "control_drift", "control_accuracy_loss", "prefers_right", "adapter_share")


def main(words: list[str]) -> int:
    """Write the three files; exit code 0, whatever they say. UserError where nothing is measured."""
    settings = lab.parse(words)
    found = collect(settings)
    out = settings.out_dir
    plot = out / ablation.PLOT
    artifacts.write_atomically(out / "report.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    artifacts.write_atomically(out / "report.md", page.markdown(found))
    image = plot.read_bytes() if found["ablation"] else None
    artifacts.write_atomically(out / "report.html", page.render(found, image))
    for bar in found["bars"]:
        print(f"report: {page.bar_line(bar)}")
    print(f"report: {out / 'report.html'}")
    return errors.DONE


def collect(settings: AblationSettings) -> dict[str, Any]:
    """The content of report.json: the figures as lists over the seeds, the bars, an example, the ablation."""
    seeds = lab.seeds(settings)
    methods: dict[str, figures.Values] = {}
    for method in lab.METHODS:
        values = figures.over_seeds([lab.Cell(settings, method, settings.lora_rank, seed) for seed in seeds])
        if values is not None:
            methods[method] = values
    if "lora" not in methods:
        raise UserError(
            f"{settings.out_dir} has no scores of lora, seeds {settings.seeds}: make eval PROFILE=minigpt"
        )
    if "qlora" in methods:
        pairs = zip(methods["qlora"]["irregular_adapted"], methods["lora"]["irregular_adapted"], strict=True)
        methods["qlora"]["behind_lora"] = [round(other - one, 4) for one, other in pairs]
    examples = {
        method: evaluate.read(lab.Cell(settings, method, settings.lora_rank, seeds[0])) or {}
        for method in methods
    }
    return {
        "profile": settings.profile.name,
        "run": settings.run,
        "rank": settings.lora_rank,
        "seeds": seeds,
        **{key: methods["lora"][key] for key in KEYS},
        "nf4_ratio": methods.get("qlora", {}).get("nf4_ratio"),
        "bars": figures.held_against_bars(methods),
        "methods": methods,
        "memory": {method: one["sizes"] for method, one in examples.items()},
        "preference": {name: examples["lora"][name]["preference"] for name in ("base", "adapted")},
        "answers": {method: one["answers"] for method, one in examples.items()},
        "stages": took(settings, list(methods)),
        "ablation": ablation.read(settings),
    }


def took(settings: AblationSettings, methods: list[str]) -> dict[str, dict[str, Any]]:
    """Seconds of each base, training and scoring over the seeds, and their peak memory in MB."""
    paths = {"base": [lab.base_dir(settings, seed) for seed in lab.seeds(settings)]}
    for method in methods:
        cells = [lab.Cell(settings, method, settings.lora_rank, seed) for seed in lab.seeds(settings)]
        paths[f"train {method}"] = [cell.adapter_dir for cell in cells]
        paths[f"eval {method}"] = [cell.scores_dir for cell in cells]
    stages = {}
    for name, directories in paths.items():
        manifests = [artifacts.require(path, "eval PROFILE=minigpt") for path in directories]
        stages[name] = {
            "seconds": [m["seconds"] for m in manifests],
            "peak_mb": max(m["peak_mb"] for m in manifests),
        }
    return stages


if __name__ == "__main__":
    errors.run(main)
