"""`make plan`: what a training would train and take; loads nothing and changes nothing."""

from core import config, errors
from core.settings import TrainSettings
from trainer.running import preparation


def main(words: list[str]) -> int:
    """Print the plan; exit code 0, or 1 where it is above MEMORY_LIMIT."""
    settings = config.parse(TrainSettings, words)
    prepared = preparation.prepare(settings, "plan")
    above = prepared.forecast.above(settings)
    if above:
        print(f"plan: {above}")
        return errors.NEGATIVE
    return errors.DONE


if __name__ == "__main__":
    errors.run(main)
