"""Flash cards: one idea each, four a notebook, read from `data/interview/cards.yaml`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from labkit.paths import data_dir
from labkit.teach.page import Page, box, inline

MOST_FRONT = 140
MOST_BACK = 320
_ID = re.compile(r"\d\d\.[a-z][a-z0-9_]*")


class CardError(ValueError):
    """A card that cannot be used: says which, what is wrong, and the remedy."""


@dataclass(frozen=True, slots=True)
class Card:
    """A question and its answer.

    `id` is the notebook's number and a name. `prove` is an expression over `labkit.theory` that is
    true when the numbers on the card are; empty for a card without numbers.
    """

    id: str
    front: str
    back: str
    prove: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "front", "back", "prove"):
            if not isinstance(getattr(self, name), str):
                raise CardError(f"card {self.id!r}: {name} must be text; put it in quotes")
        if not _ID.fullmatch(self.id):
            raise CardError(f"card {self.id!r}: an id is like '01.size_or_time'")
        for name, most in (("front", MOST_FRONT), ("back", MOST_BACK)):
            length = len(getattr(self, name).strip())
            if not 1 <= length <= most:
                raise CardError(
                    f"card {self.id}: {name} has {length} characters, of 1 to {most}; "
                    "one idea a card: say it shorter, or make two"
                )

    @property
    def notebook(self) -> str:
        """The number of the notebook it belongs to."""
        return self.id[:2]


def read_cards(path: Path | None = None) -> tuple[Card, ...]:
    """All cards in order; refuses a file that breaks the schema."""
    place = path or data_dir() / "interview" / "cards.yaml"
    try:
        read = yaml.safe_load(place.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise CardError(f"{place.name}: {error}") from error
    if not isinstance(read, dict) or set(read) != {"cards"} or not isinstance(read["cards"], list):
        raise CardError(f"{place.name}: expected one key, `cards`, with a list under it")
    cards = tuple(_cards(read["cards"], place.name))
    ids = [card.id for card in cards]
    if twice := next((name for name in ids if ids.count(name) > 1), None):
        raise CardError(f"{place.name}: {twice} is there twice; an id is used once")
    return cards


def _cards(entries: list[Any], name: str) -> Iterator[Card]:
    known = {field.name for field in fields(Card)}
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise CardError(f"{name}, entry {number}: {entry!r} is no card; give id, front, back")
        if unknown := set(entry) - known:
            raise CardError(f"{name}, entry {number}: unknown key {sorted(map(str, unknown))[0]!r}")
        if missing := {"id", "front", "back"} - set(entry):
            raise CardError(f"{name}, entry {number}: {sorted(missing)[0]} is missing")
        yield Card(**entry)


def cards(notebook: str) -> Page:
    """The cards of one notebook, each folded until it is asked."""
    own = [card for card in read_cards() if card.notebook == notebook]
    if not own:
        known = ", ".join(sorted({card.notebook for card in read_cards()}))
        raise CardError(f"no cards for notebook {notebook!r}; there are some for {known}")
    text = "\n\n".join(f"{card.front}\n  {card.back}" for card in own)
    body = "".join(
        f"<details><summary>{inline(card.front)}</summary>"
        f"<p style='margin:2px 0 8px 16px'>{inline(card.back)}</p></details>"
        for card in own
    )
    return Page(text, box(body, "dotted"))
