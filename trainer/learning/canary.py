"""Signs in the first steps that nothing is being learnt: better known after a minute than after a night."""

from collections.abc import Sequence

WATCHED_STEPS = 10


def fault_in_log(steps: Sequence[dict[str, float]]) -> str | None:
    """Why the first steps show that nothing is being learnt, or None.

    A loss of exactly 0, or a gradient norm that never changes, means that the labels are all masked or that
    only a regulariser is being trained (modelscope/ms-swift#8142); a token accuracy that never changes, while
    the batches do, that the model does not see what it is asked.
    """
    watched = steps[:WATCHED_STEPS]
    if len(watched) < WATCHED_STEPS:
        return None
    when = f"the first {WATCHED_STEPS} steps"
    if all(step["loss"] == 0 for step in watched):
        return f"the loss is 0 in {when}: no label carries loss; look at the rows"
    if len({step["grad_norm"] for step in watched}) == 1:
        return f"the gradient norm is {watched[0]['grad_norm']} in each of {when}: nothing is learnt"
    accuracies = {step["token_accuracy"] for step in watched if "token_accuracy" in step}
    if len(accuracies) == 1 and accuracies != {1.0} and all("token_accuracy" in step for step in watched):
        return f"the token accuracy is {accuracies.pop()} in each of {when}: look at the rows and labels"
    return None
