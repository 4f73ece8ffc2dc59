# %% [markdown]
# # Why 50 milliseconds, and not 20 or 80?
#
# > *"You said the batcher waits up to 50 ms. Why 50? Your assistant would have said the same number.
# > Defend it, from the contract alone, against 20 and against 80."*
#
# **You will** cut the 500 ms into parts, find out what the large empty one is for, derive the window
# from both ends, and learn which question the usual answer cannot survive.
#
# 40 minutes · difficulty 2 of 3 · after 01

# %% tags=["parameters"]
rate_rps = 100
network_ms = 30

# %%
from labkit.core.settings import ConfigError, Settings
from labkit.core.units import MS
from labkit.sim.driver import simulate
from labkit.sim.fast import crossings
from labkit.sim.fast import run as fast_run
from labkit.sim.faults import Death, Straggler
from labkit.teach.notebook import cards, exercise, start, use
from labkit.theory.capacity import defend
from labkit.viz.latency import Latency, budget_bar
from labkit.workload import poisson, requests, stream

start("02")

# %% [markdown]
# ## The budget as a bar
#
# Slide the window and the rate, and watch the waits. Nothing has been explained yet; find the window
# at which the tail begins to hurt.

# %%
Latency(simulate=crossings, rate=rate_rps, gpus=2)

# %% [markdown]
# ## Cut the 500 into parts
#
# An answer has to be back in 500 ms. What takes time on the way? The dock, the GPU, the queues and the
# network. Guess how much is left over before you look.

# %% tags=["answer"]
budget_bar(
    {"dock": 50, "GPU": 100, "queue and network": network_ms, "left": 500 - 150 - network_ms}
)

# %% [markdown]
# More than half is left, and that is the first trap: it looks like slack, so why not a longer window
# and fuller boats? Because of the one morning on which a GPU dies with your request aboard.
#
# ## What the empty part is for
#
# A GPU dies just before its batch is done. Everyone aboard has lost the whole crossing, and needs
# another: that is a second 100 ms, plus the time until somebody *noticed*. The part that looked
# empty is **one retry**. Let it happen.

# %%
morning = requests(poisson(rate_rps, 20, stream(2, "arrivals")))


def with_deaths(detection_ms):
    """The latency of a run in which a GPU dies now and then, noticed after so long."""
    deaths = [
        Death(second % 3, (second * 1000 + 37) * MS, detection_ms * MS, 900 * MS)
        for second in range(1, 19)
    ]
    return simulate(Settings(), morning, gpus=3, faults=deaths).report()


# %%
for detection_ms in (0, 100, 200):
    report = with_deaths(detection_ms)
    print(
        f"noticed after {detection_ms:3} ms: P95 {report['latency_ms']['p95']:.0f} ms, "
        f"worst {report['latency_ms']['max']:.0f} ms, {report['failed']} failed"
    )

# %% [markdown]
# Nobody failed; some waited for two crossings. And the time to notice is spent **out of the reserve**:
# 200 ms later noticed, about 200 ms later answered. A slow detector eats the budget just as a long
# window does.
#
# ## Build it: when does one retry no longer fit?
#
# All in milliseconds. A GPU dies just before its batch is done. Return the longest delay between that
# death and the gateway knowing of it with which the retried answer still meets the budget, or `None`
# when even a death noticed at once comes too late.


# %% exercise="02.retry_fits"
def slowest_detection(budget, max_wait, batch_time, network):
    """The longest delay (ms) in noticing a death, or None."""
    # solution
    left = budget - max_wait - 2 * batch_time - network
    return left if left >= 0 else None
    # stub
    # return ...
    # end


# %%
exercise("02.retry_fits").check(slowest_detection)

# %%
slowest_detection = use("02.retry_fits", slowest_detection)
for window in (20, 50, 80, 100):
    print(
        f"window {window:3} ms: noticed within {slowest_detection(500, window, 100, network_ms)} ms"
    )

# %% [markdown]
# ## The window from the other side
#
# So the budget says how long a window *may* be. What says how long it *must* be? Look at the GPUs. At
# 100 req/s the timer decides, and boats leave at least one window apart. With `c` GPUs taking turns,
# each has `c` windows of time for its batch. If that is at least a batch time, **no batch ever waits
# for a GPU**: with two GPUs, half a batch time is enough.
#
# Which window is the shortest that two GPUs carry? Say it, then run.

# %% tags=["answer"]
for window in (20, 35, 50, 80):
    settings = Settings(max_wait=window * MS, backlog=None)
    report = simulate(settings, morning, gpus=2).report()
    print(f"window {window} ms, 2 GPUs: P95 {report['latency_ms']['p95']:.1f} ms")

# %% [markdown]
# ## Build it: derive the window
#
# Now both ends at once. Return `(shortest, longest)` in milliseconds: the shortest window with which
# `gpus` GPUs never make a batch wait while the timer decides, and the longest with which a request
# whose GPU dies just before its batch is done still meets the budget, retried once, the death being
# noticed `detection` ms after it happened. `None` when no window does both.


# %% exercise="02.max_wait"
def max_wait(budget, batch_time, network, detection, gpus):
    """The (shortest, longest) window in ms, or None when there is none."""
    # solution
    shortest = batch_time / gpus
    longest = budget - 2 * batch_time - network - detection
    return (shortest, longest) if shortest <= longest else None
    # stub
    # return ...
    # end


# %%
exercise("02.max_wait").check(max_wait)

# %%
max_wait = use("02.max_wait", max_wait)
print(max_wait(budget=500, batch_time=100, network=network_ms, detection=150, gpus=2))

# %% [markdown]
# The two ends meet the contract's own numbers and no folklore: **T = D / 2** is the smallest window
# that two GPUs carry without a queue, and every millisecond above it is taken from the time you have
# to notice a death.
#
# ## Defend 50 against 20 and against 80
#
# One column a window, every number computed. GPUs: to be stable; so that no batch queues; at 65 %;
# with two spares. Then latency, and a retried request's P95 for two speeds of detection.

# %%
columns = defend(rate_rps, network=network_ms)
rows = {
    "GPUs, stable": [c.stable for c in columns],
    "GPUs, no batch queues": [c.no_queue for c in columns],
    "GPUs at 65 %": [c.at_target for c in columns],
    "GPUs at 65 %, two spares": [c.with_spares for c in columns],
    "P95 ms": [c.latency_percentile() for c in columns],
    "retried P95, noticed at once": [c.retry_percentile() for c in columns],
    "retried P95, after 200 ms": [c.retry_percentile(200) for c in columns],
    "slowest detection that fits": [c.largest_detection() for c in columns],
}
print(f"{'window (ms)':30}", *(f"{c.dock.max_wait:6.0f}" for c in columns))
for name, values in rows.items():
    print(f"{name:30}", *(f"{value:6.0f}" for value in values))

# %% [markdown]
# Read it aloud. **20** needs five GPUs where 50 needs two, and eight to buy in the place of five, for
# 30 ms (computed above) that nobody asked for. **80** saves one GPU of the five and pays with detection time. **100**
# breaks as soon as the detector is slow. And the reserve alone does not force 50: at 80 the bar still
# adds up. Whoever claims it does has not done the sum.
#
# ## At 10,000 nobody can tell
#
# The follow-up: *"and at ten thousand a second?"* Predict the difference between 20 and 100.

# %% tags=["answer"]
rush = poisson(10_000, 5, stream(3, "arrivals"))
for window in (20, 50, 100):
    report = fast_run(rush, gpus=18, max_wait=window * MS)
    print(f"window {window:3} ms: P95 {report['latency_ms']['p95']:.1f} ms")

# %% [markdown]
# None. Boats are full long before any timer rings: there the lever is the batch size.
#
# ## Break it
#
# Settings that contradict the budget are refused, with the sum in the message. Make one.

# %%
try:
    Settings(max_wait=250 * MS)
except ConfigError as problem:
    print(problem)

# %% [markdown]
# Now break the *detector*. Somebody set it to half a batch above a batch, because "a batch takes 100".
# What does a GPU that is merely slow, not dead, look like to it?

# %% tags=["answer"]
slow = [Straggler(0, 1.8, 0, 20_000 * MS)]
for detector_ms in (150, 250):
    settings = Settings(overdue_after=detector_ms * MS)
    run = simulate(settings, morning, gpus=3, faults=slow)
    killed = sum("overdue" in str(event) for event in run.events)
    print(f"detector {detector_ms} ms: {killed} living GPUs ended, {run.report()['failed']} failed")

# %% [markdown]
# A detector below the slowest healthy batch is a machine for killing healthy GPUs. The default here
# is 250 ms (assumed: twice a batch and some), so that a GPU at half speed lives, and the sum still
# fits: dock, detection, a second crossing, network.
#
# ## Say it out loud
#
# > *Thirty seconds.* "From below: with two GPUs and a batch of 100 ms, boats must leave at least 50 ms
# > apart or they queue. From above: the budget is 500, a death costs a second crossing and the time
# > to notice it, so every millisecond of window is one less for detection. 20 doubles my GPUs for
# > latency nobody asked for; 80 saves one and shortens my detector's leash. At ten thousand a
# > second it does not matter, boats fill first."
#
# 1. *"So the 200 you keep back is for slow networks?"*
# 2. *"Would you retry twice?"*
#
# <details><summary>What a strong answer contains</summary>
#
# 1. No: it is one retry after a death, and the detection delay comes out of it.
# 2. Not inside the budget: two more crossings do not fit. A second loss is answered late, and rows
#    that sink twice travel in smaller company, because now they are suspects too.
#
# </details>
#
# ## Cards

# %%
cards("02")

# %% [markdown]
# ## Go deeper
#
# `labkit ferry --rate 100 --max-wait-ms 80` gives any column of the table; `labkit sim` with
# `--max-wait-ms` checks it. Next: **03, how many GPUs?**
