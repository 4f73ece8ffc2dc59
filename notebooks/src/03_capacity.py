# %% [markdown]
# # How many GPUs do 10,000 requests a second need?
#
# > *"Each GPU takes a hundred prompts a batch and 100 ms a batch. Ten thousand requests a second.
# > How many GPUs do I buy? And the day we have a hundred a second?"*
#
# **You will** do the sum, see why its first result is a floor and not an answer, watch formula,
# simulation and real processes land on one curve, and find the mistake that costs more GPUs than all
# others together.
#
# 45 minutes · difficulty 2 of 3 · after 01

# %% tags=["parameters"]
offered_rps = 10_000
target = 0.65
spares = 2

# %%
from labkit.core.settings import Settings
from labkit.core.units import MS, S
from labkit.live import Live
from labkit.paths import data_dir
from labkit.sim.driver import simulate
from labkit.sim.fast import run as fast_run
from labkit.sim.service import Jittered

# %%
from labkit.teach.notebook import cards, exercise, start, use
from labkit.theory.capacity import (
    at_target,
    cost_per_million,
    floor_gpus,
    full_load,
    needed_gpus,
    split_load,
)
from labkit.theory.dock import Dock, PullDock
from labkit.theory.queueing import full_batch_wait
from labkit.viz.charts import curves
from labkit.workload import on_off, poisson, read_trace, requests, statistics, stream

start("03")

# %% [markdown]
# ## Say a number
#
# Before any formula: how many GPUs for 10,000 req/s? Write it down. Then look.

# %% tags=["answer"]
second_of_rush = poisson(offered_rps, 5, stream(1, "arrivals"))
for gpus in (9, 10, 11, 18):
    latency = fast_run(second_of_rush, gpus=gpus)["latency_ms"]
    print(f"{gpus:2} GPUs: P50 {latency['p50']:6.1f} ms, P95 {latency['p95']:6.1f} ms")

# %% [markdown]
# Nine drown: the queue grows for as long as the rush lasts. Ten look almost well, and that is what
# makes them dangerous. Let us see where each number comes from.
#
# ## The sum
#
# A GPU at perfect fill does `B / D` = 100 per 100 ms, a thousand a second. So 10,000 needs ten: the
# **floor**, at which every GPU is always busy with a full batch and nothing ever happens to any of
# them. A service plans for 60 to 70 % of that, and for a spare or two. Four steps, aloud.

# %%
load, floor = full_load(offered_rps), floor_gpus(offered_rps)
total = needed_gpus(offered_rps, target=target, spares=spares)
print(f"floor     {floor}")
print(f"at {target:.0%}    {load / target:.2f} -> {at_target(load, target)}")
print(f"spares    {at_target(load, target)} + {spares} = {total}")
print(f"then busy {load / total:.1%} of the time")

# %% [markdown]
# ## Build it: how many servers?
#
# A server has `gpus` GPUs, and one batch takes `gpus_a_batch` of them for `batch_time` ms. Return
# `(floor, at_target, total)`: servers at perfect fill, servers busy at most `target` of the time, and
# those with the `spares`. Mind the model that needs all eight GPUs for one batch: how many *slots*
# has its server?


# %% exercise="03.servers"
def servers(rate, max_batch, gpus, gpus_a_batch, batch_time, target, spares):
    """(floor, at target, total) servers; batch_time in ms."""
    # solution
    from math import ceil

    slots = gpus // gpus_a_batch
    load = rate * batch_time / 1000 / (max_batch * slots)
    at_target = ceil(load / target)
    return ceil(load), at_target, at_target + spares
    # stub
    # return ...
    # end


# %%
exercise("03.servers").check(servers)

# %%
servers = use("03.servers", servers)
print("one GPU a batch:   ", servers(10_000, 100, 1, 1, 100, 0.65, 2))
print("eight GPUs a batch:", servers(10_000, 100, 8, 8, 100, 0.65, 2), "servers of eight GPUs each")

# %% [markdown]
# ## What is the headroom for?
#
# To keep the queue short, most say. Here is P95 against the number of GPUs at 10,000 req/s: from a
# formula (full boats leave almost regularly, service is constant), from the simulation of the same
# traffic, and from a simulation in which half of each second is twice as busy as the other half.
# Where is the knee of the first two? Say it: at 70 % busy, 80, 90?

# %% tags=["answer"]
fleet = list(range(10, 19))
even = poisson(10_000, 20, stream(4, "arrivals"))
bursts = on_off(10_000, 20, stream(4, "bursts"), on_seconds=0.5, off_seconds=0.5, off_ratio=0.5)
p95 = {
    name: [fast_run(arrivals, gpus=gpus)["latency_ms"]["p95"] for gpus in fleet]
    for name, arrivals in (("simulation", even), ("simulation of bursts", bursts))
}
formula = [None] + [100 + Dock(10_000).wait_percentile(95)] * 8
queued = full_batch_wait(11, 10_000)
print(f"mean wait for one of 11 GPUs, by the formula: {queued:.4f} ms")

# %% tags=["answer"]
curves(
    {"formula": (fleet, formula), **{name: (fleet, values) for name, values in p95.items()}},
    x="GPUs",
    y="P95 latency, ms",
    says="Even traffic queues for nobody from 11 GPUs on; with bursts the tail needs 13.",
    marks=("simulation",),
)

# %% [markdown]
# With eleven GPUs, 91 % busy (computed), nobody queues: the knee is near 99 %, not at 70. Full boats
# leave like clockwork and every crossing takes equally long, so there is nothing to queue for. **The
# 65 % does not pay for queueing.** It pays for what the formula leaves out: bursts, GPUs that die,
# batches that do not fill, and a spare. Say that, and you have said what most candidates have wrong.
#
# ## 100 a second: the sum turns over
#
# Now the quiet day. Five or six aboard, a boat every 60 ms (computed: the window and one gap), each
# busy for 100. Whose formula says one GPU is enough? It depends on *when a batch is bound to a GPU*: at the flush (push), or when a GPU
# asks for one (pull).

# %%
quiet = requests(poisson(100, 30, stream(5, "arrivals")))
for name, backlog in (("push", None), ("pull", 0)):
    for gpus in (1, 2):
        report = simulate(Settings(backlog=backlog), quiet, gpus=gpus).report()
        latency = report["latency_ms"]
        print(
            f"{name}, {gpus} GPU: fill {report['mean_batch']:4.1f}, mean {latency['mean']:6.0f} ms, "
            f"P95 {latency['p95']:6.0f} ms"
        )

# %% [markdown]
# Under push a single GPU gets a small batch more often than it can carry one, and diverges. Under pull
# it takes whoever is there when it comes back: batches grow to ten and it is stable. Same hardware,
# same traffic, one decision.
#
# Here are formula, simulation and **live** processes together, at 100 req/s on one to four GPUs.

# %% tags=["live", "nbval-ignore-output"]
few = [1, 2, 3, 4]
short = requests(poisson(100, 3, stream(6, "arrivals")))
live = []
for gpus in few:
    with Live(gpus=gpus) as engine:
        live.append(engine.run(short).report()["latency_ms"]["mean"])
sim = [simulate(Settings(), short, gpus=n).report()["latency_ms"]["mean"] for n in few]

# %% tags=["live", "nbval-ignore-output"]
one = PullDock(100)
formula = [100 + one.mean_wait, *[100 + Dock(100).mean_wait] * 3]
curves(
    {"formula": (few, formula), "simulation": (few, sim), "LIVE": (few, live)},
    x="GPUs",
    y="mean latency, ms",
    says="Formula, simulation and real processes agree at 100 requests a second on 1 to 4 GPUs.",
    marks=("simulation", "LIVE"),
)

# %% [markdown]
# ## The expensive mistake
#
# Ten thousand a second is a lot for one process, so somebody puts five, ten, a hundred gateways side
# by side, each with **its own batcher**. What does that do to the GPUs? Guess for a hundred gateways.

# %% tags=["answer"]
for gateways in (1, 5, 10, 20, 100):
    load = split_load(10_000, gateways)
    print(
        f"{gateways:3} gateways: {load:6.1f} GPUs busy, {at_target(load, target, spares):4} to buy"
    )

# %% [markdown]
# Each of a hundred gateways sees 100 req/s, so its boats leave on the timer with six aboard. The pool
# pays for a hundred quiet mornings at once. Gateways may be many; the **batcher must be one a model**
# (or as few as the machine allows). One process of this lab holds it.
#
# ## A real kind of day
#
# Public traces are not Poisson. This one has the published statistics of a code-completion service:
# long silence, then everybody at once.

# %%
rows = list(read_trace(data_dir() / "traces/synthetic_code.csv"))
facts = statistics(rows)
print(f"{facts.rows:,} requests, {facts.rate:.1f} a second on average")
print(
    f"variation of gaps {facts.gap_cv:.1f} (Poisson: 1), peak second {facts.peak_to_mean:.0f} x the mean"
)

# %% [markdown]
# One such customer is small. Take sixty that work in step, as colleagues do:

# %%
nearby = stream(7, "customers")
instants = sorted(row.at + round(S * nearby.random()) for row in rows for _ in range(60))
counts = [0] * (instants[-1] // S + 1)
for at in instants:
    counts[at // S] += 1
print(f"{len(instants) / len(counts):.0f} a second on average, {max(counts):,} in the worst second")

# %% [markdown]
# `counts` holds the requests of each second; one GPU carries `per_gpu` a second when its batches are
# full. Return the fewest GPUs, at least one, with which at least `percent` % of the seconds stay within
# `target` of what the GPUs carry. A hundred means the peak.


# %% exercise="03.gpus_for_trace"
def gpus_for_trace(counts, per_gpu, target, percent):
    """The fewest GPUs that carry `percent` % of the seconds."""
    # solution
    from math import ceil

    rank = ceil(percent * len(counts) / 100)
    second = sorted(counts)[rank - 1]
    return max(ceil(second / (per_gpu * target)), 1)
    # stub
    # return ...
    # end


# %%
exercise("03.gpus_for_trace").check(gpus_for_trace)

# %%
gpus_for_trace = use("03.gpus_for_trace", gpus_for_trace)
by_mean = needed_gpus(len(instants) / len(counts), target=target, spares=0)
by_peak = gpus_for_trace(counts, 1_000, target, 100)
for gpus in range(by_mean, by_peak + 1):
    latency = fast_run(instants, gpus=gpus)["latency_ms"]
    print(f"GPUs {gpus}: P95 {latency['p95']:6.0f} ms, worst {latency['max']:6.0f} ms")

# %% [markdown]
# Sized by its mean the service misses its objective on a day whose average is modest. *This* is what
# the headroom buys. Jitter is the other half: let the crossing time vary by a tenth, and the boats no
# longer come home in step.

# %%
for sigma in (0.0, 0.1, 0.3):
    service = Jittered(100 * MS, sigma)
    report = simulate(Settings(), requests(second_of_rush), gpus=11, service=service).report()
    print(f"jitter {sigma:.0%}: 11 GPUs, P95 {report['latency_ms']['p95']:.1f} ms")

# %% [markdown]
# ## Why production is below the benchmark
#
# Offline, batches are always full and nobody waits. Online you pay for the bound on the wait (smaller
# batches), for bursts, and for spares. In money, at an assumed 4 an hour and GPU:

# %%
for name, gpus in (("benchmark", floor), ("production", total)):
    print(
        f"{name:10} {gpus} GPUs: {cost_per_million(gpus, 4.0, offered_rps):.2f} a million requests"
    )

# %% [markdown]
# ## The sum, as you would type it
#
# In a shared text document there is no formula editor and nobody runs your code. Type the sum for
# 10,000 req/s: from the batch to the answer, each step with its number.

# %% exercise="03.sum_in_text"
# solution
capacity = """one GPU: 100 / 100 ms = 1,000 req/s
10,000 req/s / 1,000 = 10 at perfect fill: the floor
at 65 %: 10 / 0.65 = 15.4 -> 16
+ 2 spares = 18"""
# stub
# capacity = ...
# end

# %%
exercise("03.sum_in_text").check(capacity)

# %% [markdown]
# ## Something is wrong
#
# On paper two GPUs are plenty for this load. Here they are busy all morning.

# %%
hunt = exercise("03.hunt")
hunt.show()

# %% exercise="03.hunt"
# solution
accused = "unit slip"
# stub
# accused = ...
# end

# %%
hunt.check(accused)

# %% [markdown]
# ## Say it out loud
#
# > *Thirty seconds.* "A GPU does a hundred every 100 ms, a thousand a second; ten thousand need ten as
# > a floor. I plan at 65 %, so sixteen, and two spares: eighteen. The headroom is for bursts, failures
# > and fill, not for queueing: full batches queue only at 99 %. At a hundred a second the sum turns
# > over: batches of six, one or two GPUs, and the timer is the lever. I would ask two things: the batch
# > we really achieve, and how many independent batches a server can run."
#
# 1. *"We already have twenty gateways with a batcher each. What does that cost?"*
# 2. *"The vendor's benchmark says half as many GPUs. Who is right?"*
#
# <details><summary>What a strong answer contains</summary>
#
# 1. Each sees a twentieth of the traffic, so its batches leave on the timer, small. Say the load:
#    gateways times batch time over window plus gateways over rate. Put one batcher behind them.
# 2. Both. Offline there is no bound on the wait: batches are full, nothing is spare, nothing bursts.
#
# </details>
#
# ## Cards

# %%
cards("03")

# %% [markdown]
# ## Go deeper
#
# `labkit capacity --rate 10000 --json` is the sum; `labkit sim --trace FILE --trace-scale 20` runs a
# trace of your own. The public traces this lab reads are named in `labkit/workload/traces.py`.
