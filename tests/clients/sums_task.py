"""A task for inspect: sums that the bundled model can solve."""
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

SUMS = [("Tom has 3 apples and buys 4 more. How many apples does he have now?", "#### 7"),
        ("Raj has 12 pens and buys 9 more. How many pens does he have now?", "#### 21")]


@task
def sums():
    samples = [Sample(input=question, target=answer) for question, answer in SUMS]
    return Task(dataset=samples, solver=generate(), scorer=includes())
