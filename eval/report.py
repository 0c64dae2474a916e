"""`make report`: what the run's manifests and verdicts say, as JSON, as one HTML file and as Markdown."""

import json
from typing import Any

from core import artifacts, config, errors
from core.settings import ReportSettings, RunSettings
from eval.reporting import facts, markdown, page
from eval.reporting.facts import Facts


def main(words: list[str]) -> int:
    """Write the three files; exit code 0, whatever the verdict. UserError as `facts.collect`."""
    write(config.parse(ReportSettings, words))
    return errors.DONE


def write(settings: RunSettings) -> None:
    """Write the three files of a run and print the page's path; UserError as `facts.collect`."""
    found = facts.collect(settings)
    path = settings.out_dir / "report.html"
    summary = json.dumps(as_json(found), indent=1, ensure_ascii=False) + "\n"
    artifacts.write_atomically(path.with_suffix(".json"), summary)
    artifacts.write_atomically(path.with_suffix(".md"), markdown.render(found))
    artifacts.write_atomically(path, page.render(found))
    print(f"report: {found.checkpoint} against base: {found.verdict}")
    print(f"report: {path}")


def as_json(facts: Facts) -> dict[str, Any]:
    """The content of report.json: what `verdict.judge` found, and seconds and peak memory by stage."""
    keys = ("seconds", "peak_mb")
    made = {name: manifest for name, (_, manifest) in facts.stages.items() if "seconds" in manifest}
    return facts.judged | {"stages": {name: {key: m[key] for key in keys} for name, m in made.items()}}


if __name__ == "__main__":
    errors.run(main)
