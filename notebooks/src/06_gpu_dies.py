# %% [markdown]
# # The boat sank. Who was aboard?
#
# > *"A GPU crashes in the middle of a batch. Which requests are affected? Where do they go? And does
# > any client see a duplicate?"*
#
# **You will** read the three answers off a recorded sinking, decide who goes out again and in whose
# company, find out how late a death may be noticed, kill real processes, and promise a client exactly
# what can be kept.
#
# 60 minutes · difficulty 3 of 3 · after 02

# %% tags=["parameters"]
rate_rps = 1_000
network_ms = 30

# %%
from collections import Counter
from random import Random

from labkit.core.door import Door, Send
from labkit.core.gateway import Gateway
from labkit.core.idempotency import Key, KeyLedger
from labkit.core.latency import LOST, Ledger
from labkit.core.messages import Answer, Depart, Request
from labkit.core.settings import Settings
from labkit.core.units import MS, S, to_ms
from labkit.live import Live

# %%
from labkit.sim.driver import simulate
from labkit.sim.faults import BadCount, Death, FalseAlarm, Hang, Poison, Raises
from labkit.teach.notebook import cards, exercise, start, use
from labkit.teach.zoo import ZOO
from labkit.theory.capacity import AfterLoss, Window
from labkit.theory.dock import Dock
from labkit.viz.budget import budget_bar
from labkit.viz.charts import curves
from labkit.viz.lanes import Lanes
from labkit.workload import poisson, requests, stream

start("06")

# %% [markdown]
# ## A boat is down
#
# Eight GPUs, small boats. GPU 3 died a moment ago, in the middle of its batch. The dispatcher does
# not know yet.

# %%
morning = requests(poisson(rate_rps, 0.6, stream(6, "arrivals")))
sinking = simulate(
    Settings(max_batch=20),
    morning,
    gpus=8,
    faults=[Death(gpu=3, at=300 * MS, detected_after=20 * MS, back_after=250 * MS)],
    trace=True,
)
Lanes(sinking.trace, at=319 * MS)

# %% [markdown]
# Commit to three answers before you go on. **Which** requests have lost their work, and who can name
# them? **Where** do they stand in the queue afterwards? Does anybody get **two** answers?

# %% tags=["answer"]
Lanes(sinking.trace)

# %% [markdown]
# ## Which: the mapping table
#
# One table in the dispatcher says which request is in which batch on which GPU. It is written when a
# batch leaves, so when a GPU is lost nobody has to be asked. Read it off the trace: the batch that
# was on that GPU, and the one that left because its passengers had returned.

# %% tags=["answer"]
trace = sinking.trace
loss = next(step for step in trace.steps if step.verb == "lose")
boats = [(now, boat) for now, boat in trace.commands() if isinstance(boat, Depart)]
down = [(now, boat) for now, boat in boats if boat.gpus == loss.args and now < loss.now][-1]
again = next((now, boat) for now, boat in boats if boat.receipt.reason == "returned")
for what, (now, boat) in (("sank", down), ("again", again)):
    ids = f"{len(boat.rows)} requests, {boat.rows[0].id} to {boat.rows[-1].id}"
    print(f"{what:5} batch {boat.batch_id}, GPU {boat.gpus[0]}, {to_ms(now):.1f} ms: {ids}")

# %% [markdown]
# The same people in the same order, on another GPU. Now row by row, and what each of them had behind
# it, to the microsecond. The four parts add up, since each begins where the one before it ended.

# %% tags=["answer"]
accounts = Ledger(trace.steps).accounts
print("request  batch, GPU   again    waited + lost + waited + GPU = latency (ms)")
for row in (*down[1].rows[:3], down[1].rows[-1]):
    spent = [to_ms(stage.end - stage.start) for stage in accounts[row.id].stages]
    places = "      ".join(f"{boat.batch_id:2}, {boat.gpus[0]}" for _, boat in (down, again))
    print(f"{row.id:7}      {places}    ", end="")
    print(" + ".join(f"{ms:.1f}" for ms in spent), f"= {sum(spent):.1f}")

# %% [markdown]
# ## Where: to the head of the line
#
# Others had come meanwhile, and they stayed behind: those who return stand ahead of everybody and are
# due at once, without another window. The receipt of the second departure says what is left.

# %% tags=["answer"]
receipt = again[1].receipt
print(f"reason {receipt.reason}; the oldest aboard came {to_ms(receipt.oldest_age):.1f} ms ago")
print(f"{sum(receipt.stayed)} stayed behind, the first of them request {receipt.first_stayed[0]}")
print(f"left of the 500 ms when this batch is done: {to_ms(receipt.slack):.1f} ms")

# %% tags=["answer"]
waited, lost, _, gpu = [to_ms(s.end - s.start) for s in accounts[down[1].rows[0].id].stages]
budget_bar({"dock": waited, "lost": lost, "GPU": gpu, "network": network_ms})

# %% [markdown]
# That is the reserve, spent knowingly. A death costs what was lost of the first crossing, the time to
# notice, and one more crossing.
#
# ## Twice: count the answers

# %% tags=["answer"]
told = Counter(
    row.id for _, command in trace.commands() if isinstance(command, Answer) for row in command.rows
)
print(f"{len(told)} of {len(morning)} answered; the most answers to one: {max(told.values())}")

# %% [markdown]
# No client saw anything but a slower answer. Some requests were computed twice; none was answered
# twice. Keep those two apart, for that is the whole of this notebook.
#
# ## With whom does it go out again?
#
# Most GPUs die of themselves. But some requests kill: a prompt that runs a kernel out of memory takes
# down every GPU that touches it. Sent out whole again and again, it takes a hundred blameless people
# with it each time. Sent out each alone after the first loss, a hundred boats leave in the place of
# one.
#
# ## Build it: who goes out again?
#
# `rows` are the ids aboard, `losses` says how many boats have gone down with them, this one included.
# Return the groups in which they go out again: **whole** after the first loss, **in tens** after the
# second, **alone** after the third. After the fourth an empty list: they have failed.


# %% exercise="06.on_loss"
def on_loss(rows, losses):
    """The groups in which those of a lost boat go out again."""
    # solution
    size = {1: 100, 2: 10, 3: 1}.get(losses)
    if size is None:
        return []
    return [rows[i : i + size] for i in range(0, len(rows), size)]
    # stub
    # return ...
    # end


# %%
exercise("06.on_loss").check(on_loss)

# %%
on_loss = use("06.on_loss", on_loss)
for losses in (1, 2, 3, 4):
    print(f"{losses} lost: groups of", [len(group) for group in on_loss(list(range(25)), losses)])

# %% [markdown]
# ## One of them sinks every boat
#
# A hundred people, and request 37 kills whatever runs it. How many GPUs does it take down, and how
# many of the other 99 are answered? Two numbers, then look.

# %% tags=["answer"]
company = requests([0] * 100)
killer = Poison(request_id=37, detected_after=10 * MS, back_after=400 * MS)
walk = simulate(Settings(), company, gpus=8, faults=[killer], trace=True)
Lanes(walk.trace)

# %% tags=["answer"]
deaths = sum("died" in str(event) for event in walk.events)
report = walk.report()
print(f"{deaths} deaths, {report['batches']} calls")
print(f"{report['answered']} answered, {report['failed']} failed")

# %% [markdown]
# Whole, whole again, ten tens, ten alone: 22 calls, four GPUs, and one request that fails by itself.
# Halving would have named it too, with up to eight dead. On a GPU each death costs minutes, so the
# company shrinks fast.
#
# ## Came back, and wrong
#
# Two more failures look alike, and the fault lies elsewhere. A call **raises**: one bad row, and the
# GPU lives, so another try is cheap. Or 99 outputs come back for 100 requests: the **GPU** cannot
# count, and no output can be trusted to be anybody's.
#
# ## Build it: who is answered, and who goes out again?
#
# `outputs` is what came back, or `None` when the call raised. Return a pair: a dictionary of answers,
# and the groups that go out again. Halves after a call that raised; a row that raised alone goes out
# no more. All together after a wrong count.


# %% exercise="06.came_back"
def came_back(rows, outputs):
    """(who is answered with what, the groups that go out again)."""
    # solution
    if outputs is None:
        middle = (len(rows) + 1) // 2
        return {}, [rows[:middle], rows[middle:]] if len(rows) > 1 else []
    if len(outputs) != len(rows):
        return {}, [rows]
    return dict(zip(rows, outputs)), []
    # stub
    # return ...
    # end


# %%
exercise("06.came_back").check(came_back)

# %%
came_back = use("06.came_back", came_back)
for what, fault in (("request 37 raises", Raises(37)), ("99 outputs for 100", BadCount(gpu=0))):
    run = simulate(Settings(), company, gpus=8, faults=[fault])
    report, stopped = run.report(), sum("stopped" in str(event) for event in run.events)
    print(
        f"{what:18}: {report['batches']:2} calls, {report['answered']} answered, "
        f"{report['failed']} failed, {stopped} GPU taken out"
    )

# %% [markdown]
# A partial batch at the *flush* is fine: it left early, with seats free. A partial batch at the
# *failure* is the one to walk through, and the walk is: whose fault, who is answered, who goes again.
#
# ## Head or tail?
#
# Somebody requeues at the end of the line, as appending to a list does. On a quiet day nobody can
# tell. Here are four GPUs at 80 % (computed), and one dies every 0.7 s (assumed). Draw the two curves
# in your mind: latency of those who sank, from the luckiest to the unluckiest.

# %%
busy = requests(poisson(3_200, 4, stream(8, "arrivals")))
unlucky = [Death(None, at * MS, 30 * MS, 600 * MS) for at in range(500, 4_000, 700)]


def who_sank(gateway):
    """Latencies (ms, ascending) of those whose GPU died."""
    run = simulate(Settings(), busy, gpus=4, faults=unlucky, trace=True, gateway=gateway)
    sunk = [one for one in Ledger(run.trace.steps).accounts.values() if one.spent(LOST)]
    return sorted(to_ms(one.ended_at - one.arrived_at) for one in sunk)


# %% tags=["answer"]
tail = ZOO["requeue_at_tail"].make(Settings(), Random(1))
latencies = {"head": who_sank(Gateway(Settings())), "tail": who_sank(tail)}
percents = list(range(1, 101))
curves(
    {
        name: (percents, [values[len(values) * p // 100 - 1] for p in percents])
        for name, values in latencies.items()
    },
    x="percent of those who sank",
    y="latency, ms",
    says="Requeued at the head all who sank are in time; at the tail more than half are late.",
    budget=True,
)

# %%
for name, values in latencies.items():
    late = sum(ms + network_ms > 500 for ms in values)
    print(f"{name}: worst {values[-1]:.0f} ms, {late} of {len(values)} over the budget")

# %% [markdown]
# At the tail a request pays for two queues, and it was the oldest of all. The head costs the others
# next to nothing: one batch goes before theirs.
#
# ## How late may you notice?
#
# In 02 you derived the *worst* case: the longest wait, and a death at the last instant of the batch.
# The promise is a P95. Collect what those who sank really had behind them: how long each waited, and
# how far it had sailed when its GPU died.

# %%
moments = stream(9, "deaths")
quiet = requests(poisson(100, 60, stream(7, "arrivals")))
faults = [
    Death(None, round((0.25 * n + 0.2 * moments.random()) * S), 0, 20 * MS) for n in range(4, 230)
]
stormy = simulate(Settings(), quiet, gpus=6, faults=faults, trace=True)
everybody = Ledger(stormy.trace.steps).accounts.values()
lives = [
    tuple(to_ms(stage.end - stage.start) for stage in one.stages[:2])
    for one in everybody
    if one.spent(LOST)
]
print(f"{len(lives)} sank; (waited, sailed) of three of them: {lives[:3]}")

# %% [markdown]
# ## Build it: the slowest detector that still fits
#
# Return the largest delay with which `percent` % of them still meet the budget, all retried once and
# all in milliseconds, or `None`. Is the P95 of a sum the sum of two P95s?


# %% exercise="06.detection"
def slowest_detection_for(lives, percent, budget, batch_time, network):
    """The largest delay (ms) with which so many meet the budget, or None."""
    # solution
    from math import ceil

    rank = ceil(percent * len(lives) / 100)
    spent = sorted(waited + sailed for waited, sailed in lives)
    left = budget - network - batch_time - spent[rank - 1]
    return left if left >= 0 else None
    # stub
    # return ...
    # end


# %%
exercise("06.detection").check(slowest_detection_for)

# %%
slowest_detection_for = use("06.detection", slowest_detection_for)
for percent in (95, 99, 100):
    delay = slowest_detection_for(lives, percent, 500, 100, network_ms)
    print(f"P{percent:<3} of those who sank allows {delay:.0f} ms")
form = Window(Dock(100, 50), network=network_ms)
print(f"closed form, P95     {form.largest_detection():.0f} ms")
print(f"worst case, from 02  {500 - 50 - 2 * 100 - network_ms} ms")

# %% [markdown]
# Ask back: *the P95 of whom?* Here is the sinking you began with, once for everybody.

# %% tags=["answer"]
everyone, share = sinking.report()["latency_ms"], len(down[1].rows) / len(morning)
print(f"{share:.1%} sank; everybody: P95 {everyone['p95']:.0f} ms, P99 {everyone['p99']:.0f} ms")

# %% [markdown]
# One death at a time hurts fewer than one request in twenty, and then the P95 of **everybody** does
# not see it at all. The objective would let you ignore those who sank. Measure them as a class of
# their own.
#
# A death is loud: a process ends, a socket closes. A **hang** is silent, and only a deadline finds it.
# It counts from the departure, so the first crossing is inside it.

# %%
hang = [Hang(gpu=3, at=250 * MS)]
watched = simulate(Settings(max_batch=20, overdue_after=250 * MS), morning, gpus=8, faults=hang)
for event in watched.events:
    print(f"{to_ms(event.at):5.0f} ms  {event.what}")
print(f"worst answer {watched.report()['latency_ms']['max']:.0f} ms, of 500")

# %% [markdown]
# ## It was not dead
#
# The detector can be wrong. It gives GPU 3 up, its passengers go out again, and then its answer comes
# after all. From the bank nobody can tell *dead* from *late*. One life of a GPU is an **epoch**: it
# begins with a join and ends with the first fault. A batch belongs to one epoch, so its id is closed
# when the epoch ends, and what comes back under a closed id is dropped, and counted. Other systems
# number the lives and fence by (gpu, epoch); ids that are never used twice need no number. What if a
# late answer is believed?

# %% tags=["answer"]
alarm = [FalseAlarm(gpu=3, at=300 * MS)]
small = Settings(max_batch=20)
gateways = {"fenced": Gateway(small), "believed": ZOO["late_accepted"].make(small, Random(1))}
for name, gateway in gateways.items():
    run = simulate(small, morning, gpus=8, faults=alarm, trace=True, gateway=gateway)
    told = Counter(
        row.id for _, one in run.trace.commands() if isinstance(one, Answer) for row in one.rows
    )
    twice = sum(count > 1 for count in told.values())
    print(f"{name:8}: {twice:2} requests answered twice, {gateway.late} late result dropped")

# %% [markdown]
# ## Now for real
#
# The virtual clock agrees with everything you say to it. These are processes, and this is SIGKILL:
# three times, whichever of them is in the middle of a batch. Every answer carries a tag of its own
# prompt. Say first how long it takes to notice that a process is gone.

# %% tags=["live", "nbval-ignore-output"]
with Live(gpus=4, trace=20_000) as live:
    struck = live.run(requests(poisson(300, 3.5, stream(11, "arrivals"))), kills=[0.8, 1.6, 2.4])
    recorded = live.trace
report = struck.report()
print(f"LIVE  {report['offered']} offered, {report['answered']} answered, {report['lost']} lost")
print(f"LIVE  {report['duplicated']} answered twice, {report['wrong_tag']} wrong tags")
for hurt in report["faults"]:
    print(
        f"LIVE  GPU {hurt['gpu']} killed with {hurt['aboard']} aboard, noticed after "
        f"{hurt['detection_ms']:.1f} ms, back after {hurt['back_ms']:.0f} ms"
    )
print(f"LIVE  P95 {report['latency_ms']['p95']:.0f} ms, worst {report['latency_ms']['max']:.0f} ms")

# %% [markdown]
# The same three answers from this run's own trace: who was aboard, where they went, what was left.

# %% tags=["live", "nbval-ignore-output"]
books = Ledger(recorded.steps).accounts
for _, boat in recorded.commands():
    if isinstance(boat, Depart) and boat.receipt.reason == "returned":
        first = books[boat.rows[0].id]
        print(
            f"LIVE  requests {boat.rows[0].id} to {boat.rows[-1].id} again on GPU {boat.gpus[0]}: "
            f"{to_ms(first.spent(LOST)):.0f} ms lost, answered after "
            f"{to_ms(first.ended_at - first.arrived_at):.0f} ms, "
            f"slack {to_ms(boat.receipt.slack):.0f} ms"
        )

# %% tags=["live", "nbval-ignore-output"]
struck_at = next(step.now for step in recorded.steps if step.verb == "lose")
Lanes(recorded, window=(struck_at - 200 * MS, struck_at + 300 * MS), at=struck_at + 300 * MS)

# %% [markdown]
# An exit is noticed within milliseconds here, because the operating system says so. Across a network
# it is heartbeats that say it, and then the time you computed above is the time you have.
#
# ## The client sends it again
#
# All this was inside. Outside, a client loses patience and sends the request once more, and now two
# requests are one wish. It marks both with one **idempotency key**. Here a door stands before the
# gateway: it is told what happens, and each call hands back what is to be done. Three calls come with
# one key, and the GPU of the first one dies.

# %%
key, prompt = Key("acme", "/v1/completions", "order-17"), "When does the ferry leave?"
door = Door(Gateway(Settings()), KeyLedger(), lambda ticket, ended: (200, ended[0].encode()))
for gpu in (0, 1):
    door.join(gpu, "ferry", 0)
door.submit([Request(1, prompt)], key, prompt.encode(), 0)
log = [("the window ends", door.advance(50 * MS)), ("GPU 0 dies", door.lose(0, 100 * MS))]
log.append(("it goes out again", door.advance(100 * MS)))
asked = door.submit([Request(2, prompt, 120 * MS)], key, prompt.encode(), 120 * MS)
log.append(("the client asks again", asked))
log.append(("GPU 1 is done", door.finish(2, ["On the hour."], 200 * MS)))
log.append(("it is on disk", door.stored(key)))
log.append(("a third time", door.submit([Request(3, prompt)], key, prompt.encode(), 210 * MS)))

# %%
for what, commands in log:
    said = ""
    for one in commands:
        said = type(one).__name__
        if isinstance(one, Send):
            said += f" {one.body.decode()!r} to calls {', '.join(map(str, one.tickets))}"
    print(f"{what:22} {said or 'nothing to do'}")

# %% [markdown]
# Computed twice: two departures. Recorded once, before anybody hears it. Answered with the same bytes,
# to the first call and to both retries. The promise is: **at most one recorded outcome a key. GPU work
# may repeat, the recorded answer may not.** It is not "exactly once": nobody can promise that about
# a machine that may die between doing and saying.
#
# ## Build it: the ledger of keys
#
# `("begin", key, request)` is a call, `("end", key, status)` how its work ended. Return a reply for
# each begin: `"run"`, `"wait"`, `"refuse"` for another request under this key, or the kept status.
# 200 and 422 are kept; 429 and the rest did no work and free the key. An end for a key that nobody
# computes is a late word.


# %% exercise="06.key_ledger"
def replies(events):
    """One reply to each begin: run, wait, refuse, or the status that is replayed."""
    # solution
    book, said = {}, []
    for verb, key, what in events:
        request, status = book.get(key, (None, None))
        if verb == "end" and request is not None and status is None:
            book[key] = (request, what) if what in (200, 422) else (None, None)
        elif verb == "begin" and request is None:
            book[key] = (what, None)
            said.append("run")
        elif verb == "begin":
            same = "wait" if status is None else status
            said.append(same if request == what else "refuse")
    return said
    # stub
    # return ...
    # end


# %%
exercise("06.key_ledger").check(replies)

# %%
replies = use("06.key_ledger", replies)
crowd = [("begin", "k", "hello")] * 50
print("50 at once: ", Counter(replies(crowd)))
print("after a 429:", replies([crowd[0], ("end", "k", 429), crowd[0]]))
print("poison:     ", replies([crowd[0], ("end", "k", 422), crowd[0]]))

# %% [markdown]
# Why keep the failure of a poison request? Clients retry what looks temporary. Given a 500 and a free
# key, this one comes back, and each time it takes four more GPUs. A 422 under its key ends that.
#
# ## Half the boats
#
# The follow-up that ends many rounds: *"half of your eighteen GPUs just died, at ten thousand a
# second."* Say what the nine carry, and what has to go, before you compute the rest.

# %% tags=["answer"]
after = AfterLoss(rate=10_000, gpus=18, lost=9)
print(
    f"{after.lost_in_flight:.0f} lost in flight; nine carry {after.ceiling:,.0f} a second at most"
)
print(f"shed {after.shed():.0%} to be stable, {after.shed(0.65):.1%} to be at 65 % again")
print(f"shed nobody: late for whoever arrives from {after.first_late_arrival():.1f} s on")
shed = requests(poisson(8_500, 1.5, stream(10, "arrivals")))
for delay in (0, 50, 100, 200):
    dead = [Death(gpu, 500 * MS, delay * MS, None) for gpu in range(9)]
    worst = simulate(Settings(), shed, gpus=18, faults=dead).report()["latency_ms"]["max"]
    print(f"15 % shed, noticed after {delay:3} ms: worst answer {worst:.0f} ms")

# %% [markdown]
# Shed first, and everything else is the walk you have just built: the table names those who sank,
# they stand at the head, and the budget holds.
#
# ## Something is wrong
#
# Two gateways, one fault each. Read the last column.

# %%
hunt = exercise("06.hunt")
hunt.show()

# %% exercise="06.hunt"
# solution
accused = "one forgotten"
# stub
# accused = ...
# end

# %%
hunt.check(accused)

# %%
ghosts = exercise("06.ghost_hunt")
ghosts.show()

# %% exercise="06.ghost_hunt"
# solution
accused = "late accepted"
# stub
# accused = ...
# end

# %%
ghosts.check(accused)

# %% [markdown]
# ## Say it out loud
#
# > *Thirty seconds.* "The mapping table names who was aboard; it was written at departure. They go to
# > the head of the queue and leave at once on another GPU, so a death costs one more crossing and the
# > time to notice, and that is what my reserve is for. After a second loss they travel in tens, then
# > alone, so a poison request costs four GPUs and fails by itself. A batch is closed with its GPU's
# > epoch, which fences late answers, so nobody is answered twice. A client's own retry carries a key:
# > work may repeat, the recorded answer may not."
#
# 1. *"So you guarantee exactly once?"*
# 2. *"Your detector fires and the GPU was only slow. What happens to its batch?"*
#
# <details><summary>What a strong answer contains</summary>
#
# 1. No. At most one *recorded* outcome for a tenant's key, while it is kept; computing may happen
#    twice. The record is written before the client hears it. Another request under the same key is
#    refused; a 429 frees the key; a poison request's failure is kept.
# 2. It is requeued as if lost, and its GPU is fenced: the epoch is over, the batch's id is closed with
#    it, and its result is dropped, counted. Then the cost: one wasted crossing and a restart. A deadline below the slowest
#    healthy batch kills healthy GPUs, so it is set at more than twice a batch, and the sum is checked
#    against the budget.
#
# </details>
#
# ## Cards

# %%
cards("06")

# %% [markdown]
# ## Go deeper
#
# `labkit faults --runs 1000` lets a whole service live through a thousand drawn disasters and checks
# every law at every step; `--bug one_forgotten` plants a fault and shows how soon it is caught.
# `labkit storm` kills real processes under load, with `--crash` the dispatcher too, whose clients come
# back with their keys. The walk you built is `labkit/core/mapping.py`, the ledger
# `labkit/core/idempotency.py`, a page each. One question stays open: whom do you turn away, and
# when, once shedding is the only answer left?
