"""Labels written out as hypotheses, for zero-shot classification by entailment (arXiv 1909.00161)."""

from __future__ import annotations

from sie_core.contracts import InvalidInput, Task
from sie_text.options import HYPOTHESIS
from sie_text.prompts import check_length, parse_template

OPTION = "options.hypothesis_template"


def hypotheses(task: Task) -> list[str]:
    """Write each label of `task` out as a sentence, as transformers' pipeline `zero-shot-classification` does.

    Raises:
        InvalidInput: The template does not hold `{}` once, or is long; or there is an instruction, which no template
        reads.
    """
    if task.instruction:
        raise InvalidInput(
            f"instruction is not read where texts are classified, {OPTION} is; leave it out.", param="instruction"
        )
    template = task.options.get("hypothesis_template") or HYPOTHESIS
    check_length(OPTION, len(template), len(task.labels))
    try:
        before, after = parse_template(template, ("label",), blank="label").around("label", {})
    except ValueError as problem:
        raise InvalidInput(f"{OPTION} {problem}", param=OPTION) from None
    return [f"{before}{label}{after}" for label in task.labels]
