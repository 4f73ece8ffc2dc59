"""06.key_ledger: one execution a key, and what is kept under it."""

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from labkit.core.idempotency import Key, KeyLedger, Standing
from labkit.core.messages import Outcome
from labkit.teach.exercises.answers import several, shown
from labkit.teach.exercises.exercise import Exercise
from labkit.teach.exercises.guard import Guarded
from labkit.teach.exercises.search import smallest
from labkit.teach.exercises.verdict import Case, Refuted

Event = tuple[str, str, str | int]
"""`("begin", key, request)` or `("end", key, status)`."""

Reply = str | int
"""`run`, `wait`, `refuse`, or the status that is replayed."""

OUTCOMES = {
    200: Outcome.ANSWERED,
    422: Outcome.FAILED,
    429: Outcome.REJECTED,
    499: Outcome.CANCELLED,
    503: Outcome.REJECTED,
    504: Outcome.EXPIRED,
}
"""How a call with each status ended."""

SAID = {Standing.NEW: "run", Standing.IN_FLIGHT: "wait", Standing.OTHER_REQUEST: "refuse"}


def replies(events: Sequence[Event]) -> list[Reply]:
    """What the real ledger of keys replies to each `begin`."""
    ledger, said = KeyLedger(), list[Reply]()
    holders: dict[str, int] = {}
    for now, (verb, key, what) in enumerate(events):
        whole = Key("", "", key)
        if verb == "end":
            assert isinstance(what, int)
            ledger.finish(whole, holders.get(key, -1), OUTCOMES[what], what, b"", now)
            continue
        found = ledger.begin(whole, str(what).encode(), now, now)
        assert found is not None
        if found.standing is Standing.NEW:
            holders[key] = now
        status = found.entry.status
        said.append(SAID.get(found.standing, status or 0))
    return said


BEGIN, OTHER = ("begin", "k1", "A"), ("begin", "k1", "B")


def small_days() -> Iterator[tuple[Event, ...]]:
    """One key, then two; the fewest events first."""
    yield (BEGIN,)
    yield BEGIN, BEGIN
    yield BEGIN, OTHER
    yield BEGIN, ("begin", "k2", "A")
    for status in OUTCOMES:
        yield BEGIN, ("end", "k1", status), BEGIN
    for status in (200, 429):
        yield BEGIN, ("end", "k1", status), OTHER
    # The late word of a GPU that was given up for dead.
    yield BEGIN, ("end", "k1", 200), ("end", "k1", 503), BEGIN
    yield BEGIN, ("end", "k1", 429), ("end", "k1", 200), BEGIN
    yield BEGIN, BEGIN, ("end", "k1", 200), BEGIN
    # Whoever else is done meanwhile takes nobody's place.
    yield BEGIN, ("end", "k1", 200), ("begin", "k2", "A"), ("end", "k2", 200), BEGIN


@st.composite
def days(draw: st.DrawFn) -> tuple[Event, ...]:
    """Up to eight events on two keys."""
    begin = st.tuples(st.just("begin"), st.sampled_from(["k1", "k2"]), st.sampled_from(["A", "B"]))
    end = st.tuples(st.just("end"), st.sampled_from(["k1", "k2"]), st.sampled_from([*OUTCOMES]))
    return tuple(draw(st.lists(st.one_of(begin, end), min_size=1, max_size=8)))


def judge_key_ledger(function: Guarded) -> None:
    """Reply by reply what the real ledger says."""

    def fails(day: tuple[Event, ...]) -> Refuted | None:
        begins = [event for event in day if event[0] == "begin"]
        given = f"events {shown(list(day), 120)}"
        what = f"the replies are a list, one for each of the {len(begins)} begins"
        yours = list(several(function(list(day)), what, given))
        rule = replies(day)
        if yours == rule:
            return None
        if len(yours) != len(rule):
            return Refuted(f"{given}: {len(yours)} replies to {len(rule)} begins")
        first = next(i for i, reply in enumerate(rule) if yours[i] != reply)
        return Refuted(_otherwise(day, yours, rule, first))

    smallest(function, small_days(), days(), fails)


def _otherwise(day: Sequence[Event], yours: list[Reply], rule: list[Reply], first: int) -> Case:
    rows, begun, last = [], 0, 0
    for number, (verb, key, what) in enumerate(day):
        mine = theirs = ""
        if verb == "begin":
            mine, theirs = shown(yours[begun], 24), shown(rule[begun], 24)
            if begun == first:
                last = number
            begun += 1
        rows.append((f"{verb} {key}, {what}", mine, theirs))
    shown_rows = rows[max(last - 4, 0) : last + 1]
    _, key, request = day[last]
    why = f"begin {first + 1} of {len(rule)}, {key} for request {request}: "
    why += f"you say {shown(yours[first], 24)}; {_because(day[:last], key, rule[first])}"
    return Case.tabled(why, ("event", "yours", "the rule"), shown_rows)


def _because(before: Sequence[Event], key: str, rule: Reply) -> str:
    """Why the rule's reply is the right one."""
    ends = [what for verb, whose, what in before if verb == "end" and whose == key]
    if rule == "run":
        used = any(whose == key for _, whose, _ in before)
        return "no work was done under it, so it is free" if used else "nobody has used this key"
    if rule == "wait":
        return "it is being computed, so wait for that answer"
    if rule == "refuse":
        return "the key belongs to another request"
    late = len(ends) > 1
    return f"its outcome is {rule}, once and for all" + ("; a late word changes nothing" * late)


_KEYS = "def replies(events):\n"

_KEEP = '''\
    """One reply to each begin: "run", "wait", "refuse", or the status that is replayed."""
    book, said = {}, []
    for verb, key, what in events:
        request, status = book.get(key, (None, None))
        if verb == "end":
            if request is not None and status is None:
                if what in (200, 422):
                    book[key] = (request, what)
                else:
                    del book[key]
        elif request is None:
            book[key] = (what, None)
            said.append("run")
        elif request != what:
            said.append("refuse")
        else:
            said.append("wait" if status is None else status)
    return said
'''


def _changed(old: str, new: str) -> str:
    assert old in _KEEP, old
    return _KEYS + _KEEP.replace(old, new)


KEY_LEDGER = Exercise(
    id="06.key_ledger",
    title="One key, one execution",
    minutes=12,
    difficulty=3,
    question=(
        'Events come in order: `("begin", key, request)` is a client that calls, `("end", key, '
        "status)` says how the work under that key ended. Return one reply to each `begin`: "
        '`"run"` for a free key, `"wait"` while it is being computed, `"refuse"` when the key '
        "belongs to another request, or the kept status. 200 and 422 are kept for good; every "
        "other status did no work and frees the key. An end for a key that is not being computed "
        "is a late word and changes nothing."
    ),
    stub=_KEYS + '    """One reply to each begin: run, wait, refuse, or a status."""\n'
    "    return ...\n",
    solution=_KEYS + _KEEP,
    why=(
        "The key is written down before the work begins, or two calls within a millisecond both "
        "run. It holds a fingerprint of the request, or a client that counts from 1 again gets an "
        "old answer to a new question. A 429 did no work and is forgotten, or a refusal of one "
        "second lasts a day. A poison request's 422 is kept: clients retry what looks temporary, "
        "and would sink four more boats."
    ),
    hints=(
        "A key is free, being computed, or done. What must the book hold to tell those apart, and "
        "to notice another request under the same key?",
        "`book[key] = (request, status)`, with `None` for a status that is not known yet. Ask in "
        "this order: is it free, is it another request, is it done?",
        "At an end: only if the key is there with status `None`; keep 200 and 422, else "
        "`del book[key]`. At a begin: missing -> write it down and `run`; another request -> "
        "`refuse`; `None` -> `wait`; else the status.",
    ),
    judge=judge_key_ledger,
    mutants=(
        # The key is written down when the work is done.
        _changed("            book[key] = (what, None)\n", "            pass\n"),
        # Whatever comes under the key is taken for the first request.
        _changed("        elif request != what:\n", "        elif False:\n"),
        # A refusal is kept for a day.
        _changed("what in (200, 422)", "True"),
        # A poison request is forgotten.
        _changed("what in (200, 422)", "what == 200"),
        # A key is stuck when its work ended badly.
        _changed("                else:\n                    del book[key]\n", ""),
        # A late word overwrites the outcome.
        _changed("request is not None and status is None", "request is not None"),
        # In flight is asked before another request is.
        _changed(
            "        elif request != what:\n",
            '        elif status is None:\n            said.append("wait")\n'
            "        elif request != what:\n",
        ),
        # One name for all keys.
        _changed("in events:\n", 'in events:\n        key = "key"\n'),
        # There is room for one outcome.
        _changed(
            "                    book[key] = (request, what)\n",
            "                    book = {k: v for k, v in book.items() if v[1] is None}\n"
            "                    book[key] = (request, what)\n",
        ),
        # A key is freed for good once it is done.
        _changed("book[key] = (request, what)", "del book[key]"),
    ),
    alternatives=(
        _KEYS + "    running, done, said = {}, {}, []\n    for verb, key, what in events:\n"
        "        if verb == 'end':\n            request = running.pop(key, None)\n"
        "            if request is not None and what in {200, 422}:\n"
        "                done[key] = (request, what)\n            continue\n"
        "        if key in running:\n"
        "            said.append('wait' if running[key] == what else 'refuse')\n"
        "        elif key in done:\n            request, status = done[key]\n"
        "            said.append(status if request == what else 'refuse')\n"
        "        else:\n            running[key] = what\n            said.append('run')\n"
        "    return said\n",
        _KEYS + "    said, books = [], {}\n    for verb, key, what in events:\n"
        "        entry = books.get(key)\n        if verb == 'end':\n"
        "            if entry and entry['status'] == 0:\n"
        "                entry['status'] = what\n"
        "                if what not in (200, 422):\n                    books.pop(key)\n"
        "        elif entry is None:\n"
        "            books[key] = {'request': what, 'status': 0}\n            said += ['run']\n"
        "        elif entry['request'] != what:\n            said += ['refuse']\n"
        "        else:\n            said += [entry['status'] or 'wait']\n    return said\n",
    ),
    right="reply by reply what the gateway's own ledger of keys says",
)
