"""Texts with marks inside them, where a speech LM may end too soon; always the same."""

from __future__ import annotations

import random
from collections.abc import Callable

NAMES = "Anna", "Mr. Hobbs", "Priya", "Dr. Lindqvist", "Tomas", "Mrs. Okafor", "Leo", "Yuki"
PLACES = "Lisbon", "the harbour", "St. Moritz", "the old mill", "Nairobi", "Platform 4", "the U.S."
THINGS = "a lamp", "two tickets", "the blue folder", "some bread", "an umbrella", "batteries"
QUESTIONS = (
    "What place is this?",
    "Who left the door open?",
    "Is that really yours?",
    "How long have you been here?",
    "Where did they go?",
    "You didn't see it, did you?",
)
CRIES = "Stop!", "Oh no!", "Watch out!", "Well done!", "Never again!", "Hurry up!"
VERBS = "asked", "whispered", "cried", "wanted to know", "said at last", "murmured"
MANNERS = "pausing", "looking up", "without turning round", "half asleep", "and sat down"
DAYS = "Jan. 5", "Monday at 7 p.m.", "Dec. 24, 1998", "the 3rd of May", "noon, i.e. 12 o'clock"
CLAUSES = (
    "the train was late",
    "nobody answered the phone",
    "it rained until the evening",
    "we had to walk back",
    "the shop had already closed",
    "she kept the letter in a drawer",
)

Draw = random.Random


def quoted_question(draw: Draw) -> str:
    question, name = draw.choice(QUESTIONS), draw.choice(NAMES)
    left, right = draw.choice(["“”", '""', ("", "")])
    return f"{left}{question}{right} {name} {draw.choice(VERBS)}, {draw.choice(MANNERS)}."


def exclamation(draw: Draw) -> str:
    name, cry = draw.choice(NAMES), draw.choice(CRIES)
    return f"{cry} {name} {draw.choice(VERBS)}; {draw.choice(CLAUSES)}."


def abbreviations(draw: Draw) -> str:
    first, second = draw.sample(NAMES, 2)
    return (
        f"{first} met {second} in {draw.choice(PLACES)} on {draw.choice(DAYS)}, "
        f"e.g. to buy {draw.choice(THINGS)}."
    )


def listing(draw: Draw) -> str:
    things = ", ".join(draw.sample(THINGS, draw.randint(3, 5)))
    return f"For {draw.choice(PLACES)} we need: {things}; and {draw.choice(NAMES)} brings the rest."


def sentences(draw: Draw) -> str:
    clauses = draw.sample(CLAUSES, draw.randint(2, 5))
    return " ".join(f"{clause[0].upper()}{clause[1:]}." for clause in clauses)


def dialogue(draw: Draw) -> str:
    first, second = draw.sample(NAMES, 2)
    return (
        f"“{draw.choice(QUESTIONS)}” {first} {draw.choice(VERBS)}. “{draw.choice(CRIES)}” "
        f"{second} {draw.choice(VERBS)}, for {draw.choice(CLAUSES)}."
    )


def aside(draw: Draw) -> str:
    return (
        f"{draw.choice(NAMES)} (from {draw.choice(PLACES)}) said: {draw.choice(CLAUSES)} - "
        f"{draw.choice(CRIES).lower()}"
    )


def short(draw: Draw) -> str:
    question, cry, name = draw.choice(QUESTIONS), draw.choice(CRIES), draw.choice(NAMES)
    return draw.choice([question, cry, f"{cry} {question}", f"{cry} {name}! {question}"])


KINDS: tuple[Callable[[Draw], str], ...] = (
    quoted_question,
    exclamation,
    abbreviations,
    listing,
    sentences,
    dialogue,
    aside,
    short,
)


def marked_texts(count: int) -> list[tuple[str, str]]:
    """So many different ones, each with the name of its kind."""
    draw = random.Random(20)
    found: dict[str, str] = {}
    while len(found) < count:
        kind = KINDS[len(found) % len(KINDS)]
        found.setdefault(kind(draw), kind.__name__)
    return [(kind, text) for text, kind in found.items()]
