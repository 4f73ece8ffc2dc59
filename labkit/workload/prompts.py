"""Prompts a person can read: a small grammar of questions about ferries, and the check on any."""

from random import Random
from typing import Final

PROMPT_CAP: Final = 4_096
"""Characters (Unicode code points) a prompt may have unless its tier says otherwise."""

_GRAMMAR: Final[dict[str, tuple[str, ...]]] = {
    "prompt": (
        "{ask} {boat} {when}?",
        "{ask} {boat} to {place} {when}?",
        "{who} {wish}. {ask} {boat} {when}?",
        "{who} {wish}. What should {someone} do at {place}?",
        "Explain to {who_to} why {boat} {habit}.",
        "Write one sentence about {boat} that {habit}.",
    ),
    "ask": ("When do I board", "How full is", "Who boards first on", "How long do I wait for"),
    "boat": ("the ferry", "the last boat", "the night ferry", "the boat of a hundred seats"),
    "place": ("the north bank", "the island", "the old harbour", "the far shore"),
    "when": ("at dawn", "in the rush hour", "on a quiet morning", "after the storm", "tonight"),
    "who": ("A family of five", "The school class", "A courier", "The late commuter"),
    "wish": ("wants to cross together", "can wait a minute", "has a paid ticket", "is in a hurry"),
    "someone": ("they", "the crew", "the harbour master"),
    "who_to": ("a child", "a new captain", "an impatient passenger", "the harbour master"),
    "habit": (
        "leaves when it is full",
        "leaves after a minute at most",
        "waits for nobody twice",
        "crosses in ten minutes, full or empty",
        "turns back for those it left",
    ),
}


class PromptError(ValueError):
    """A prompt that is refused: says why, the size, and the remedy."""


def ferry_prompt(rng: Random) -> str:
    """One readable prompt of some 20 to 110 characters."""
    return _expand("prompt", rng)


def ferry_prompts(count: int, rng: Random) -> tuple[str, ...]:
    """`count` readable prompts, for the tenants of a mix to share."""
    return tuple(ferry_prompt(rng) for _ in range(count))


def prompt_of(words: int, rng: Random) -> str:
    """A readable prompt of exactly `words` words: whole sentences, and the last one cut short."""
    if words < 1:
        raise PromptError(f"a prompt of {words} words: ask for 1 or more")
    said: list[str] = []
    while len(said) < words:
        said += ferry_prompt(rng).split()
    return " ".join(said[:words])


def check_prompt(text: object, cap: int = PROMPT_CAP) -> str:
    """`text` unchanged, if it is text of at most `cap` characters: emoji, NUL, empty, anything."""
    if not isinstance(text, str):
        raise PromptError(f"a prompt must be text, not {type(text).__name__}; pass a string")
    if len(text) > cap:
        raise PromptError(
            f"this prompt has {len(text):,} characters, over the cap of {cap:,}; "
            "shorten it, or send it in parts"
        )
    return text


def _expand(symbol: str, rng: Random) -> str:
    rules = _GRAMMAR[symbol]
    text = rules[int(rng.random() * len(rules))]
    while "{" in text:
        before, _, rest = text.partition("{")
        name, _, after = rest.partition("}")
        text = f"{before}{_expand(name, rng)}{after}"
    return text
