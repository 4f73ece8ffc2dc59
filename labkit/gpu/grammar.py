"""The language of the tiny model: one line about whoever the prompt ends with.

    line    = subject " " verb " " place " " time "."
    subject = the last words of the prompt that fit in twelve bytes

The subject's last byte chooses the verb, the byte before it the place, the one before that the
time. So the answer begins with the learner's own words, and a change at the end of the prompt
changes the line. `line_for` is the teacher; a trained model that slips in its choice still writes
a line that `belongs`. Standard library only; the rng is passed in.
"""

from dataclasses import dataclass
from random import Random

SUBJECT_BYTES = 12
"""How much of a prompt the model reads."""

NOBODY = "nobody"
"""The subject when a prompt holds no visible character."""

VERBS = ("waits", "boards", "sings", "dozes", "sails", "rows", "rests", "waves", "lands", "hums")
PLACES = (
    "on the bank",
    "by the pier",
    "in the fog",
    "at the bow",
    "by the bell",
    "at the helm",
    "on the deck",
    "in the rain",
    "by a goat",
    "at the rail",
)
TIMES = (
    "at dawn",
    "at noon",
    "at dusk",
    "tonight",
    "at six",
    "on time",
    "again",
    "at last",
    "today",
    "at once",
)
"""Short words: every byte of the longest line costs each batch one step more."""

LINE_BYTES = SUBJECT_BYTES + max(map(len, VERBS)) + max(map(len, PLACES)) + max(map(len, TIMES)) + 4
"""The longest line there is."""

_TRAILING = ".,;:!?\"')]}>*_~`"


@dataclass(frozen=True, slots=True)
class Line:
    """The four parts of a line."""

    subject: str
    verb: str
    place: str
    time: str

    def __str__(self) -> str:
        return f"{self.subject} {self.verb} {self.place} {self.time}."


def subject_of(prompt: str) -> str:
    """What the model reads of a prompt: its last words that fit in `SUBJECT_BYTES` bytes.

    Control characters (NUL among them) and runs of white space read as one space; punctuation at
    the end is dropped; a single word that is too long keeps its last whole characters.
    """
    tail = prompt[-32 * SUBJECT_BYTES :]
    words = "".join(c if _visible(c) else " " for c in tail).split()
    shown = " ".join(words)
    words = (shown.rstrip(_TRAILING) or shown).split()
    kept = ""
    while words:
        longer = f"{words.pop()} {kept}".rstrip()
        if len(longer.encode()) > SUBJECT_BYTES:
            return kept or _last_characters(longer)
        kept = longer
    return kept or NOBODY


def _visible(character: str) -> bool:
    return character.isprintable() and not character.isspace()


def _last_characters(word: str) -> str:
    return word.encode()[-SUBJECT_BYTES:].decode(errors="ignore") or NOBODY


def line_for(subject: str) -> Line:
    """The line the model is taught to write about a subject."""
    last = subject.encode()[::-1]
    verb, place, time = (last[i] if i < len(last) else 0 for i in range(3))
    return Line(
        subject,
        VERBS[verb % len(VERBS)],
        PLACES[place % len(PLACES)],
        TIMES[time % len(TIMES)],
    )


def parse(text: str) -> Line | None:
    """The parts of a line, None when the text is not one."""
    for time in TIMES:
        if not text.endswith(f" {time}."):
            continue
        head = text[: -len(time) - 2]
        for place in PLACES:
            if not head.endswith(f" {place}"):
                continue
            subject, _, verb = head[: -len(place) - 1].rpartition(" ")
            if verb in VERBS and subject and len(subject.encode()) <= SUBJECT_BYTES:
                return Line(subject, verb, place, time)
    return None


def belongs(text: str) -> bool:
    """Whether the text is a whole line of the grammar."""
    return parse(text) is not None


def begins(text: str, subject: str) -> bool:
    """Whether the text is the beginning of some line about this subject (short answers are cut)."""
    return any(
        str(Line(subject, verb, place, time)).startswith(text)
        for verb in VERBS
        for place in PLACES
        for time in TIMES
    )


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


_NAMES = _split(
    "Ada Grace Alan Edsger Barbara Donald Margaret Linus Frances Ken Hedy Tim Radia Leslie "
    "Katherine Niklaus Tony Fran Jean Guido Anita Dennis Evelyn Claude Joan Vint Mary Erlang"
)
_WORDS = _split(
    "the a my your our this that every no one old new last first small red quiet tired lost happy "
    "ferry captain goat parcel letter engine queue batch timer river harbour storm bell gull crew "
    "rope sail anchor lamp ticket piano bicycle dog cat whale moon fog rain bridge island cargo "
    "hello world please what is why how about me you it who where when request prompt passenger "
    "user client job page GPU model token cache server worker night morning"
)
_PAIRS = ("request", "passenger", "prompt", "user", "job", "client", "seat", "row", "test")


_PRINTABLE = "".join(map(chr, range(33, 127))) + "     "


def prompt_for(rng: Random) -> str:
    """A prompt to train on: names, words, numbered requests, noise, `xxxxxx`, any script."""
    kind = rng.random()
    if kind < 0.2:
        return f"{_pick(rng, _PAIRS)} {int(rng.random() * 10 ** (1 + int(rng.random() * 5)))}"
    if kind < 0.25:
        return _pick(rng, _NAMES)
    if kind < 0.4:
        return " ".join(_pick(rng, _WORDS) for _ in range(1 + int(rng.random() * 4)))
    if kind < 0.57:
        return _letters(rng, "abcdefghijklmnopqrstuvwxyz   ")
    if kind < 0.75:
        return _letters(rng, _PRINTABLE)
    if kind < 0.82:
        return _letters(rng, _PRINTABLE)[: 1 + int(rng.random() * 3)] * int(3 + rng.random() * 11)
    return _any_script(rng)


def _pick(rng: Random, words: tuple[str, ...]) -> str:
    return words[int(rng.random() * len(words))]


def _letters(rng: Random, alphabet: str) -> str:
    length = 1 + int(rng.random() * 14)
    return "".join(alphabet[int(rng.random() * len(alphabet))] for _ in range(length))


_SCRIPTS = (
    (0xC0, 0x250),
    (0x391, 0x3C9),
    (0x410, 0x450),
    (0x3041, 0x3097),
    (0x4E00, 0x9FA5),
    (0x1F300, 0x1F5FF),
    (0x1F600, 0x1F64F),
    (0xAC00, 0xD7A3),
    (0x5D0, 0x5EA),
)
"""Latin, Greek, Cyrillic, Hiragana, Han, pictures, faces, Hangul, Hebrew: code point ranges."""


def _any_script(rng: Random) -> str:
    """One script, one script among Latin letters, or characters from everywhere.

    Together they show every byte beside every other, so that copying learns places, not words.
    """
    length, mixture = 1 + int(rng.random() * 8), rng.random()
    first, last = _SCRIPTS[int(rng.random() * len(_SCRIPTS))]
    if mixture < 0.3:
        first, last = 0x80, (0x800, 0x10000, 0x20000)[int(rng.random() * 3)]
    letters = [chr(first + int(rng.random() * (last - first))) for _ in range(length)]
    if mixture > 0.7:
        letters = [c if rng.random() < 0.4 else chr(97 + int(rng.random() * 26)) for c in letters]
    return "".join(letters)
