# %% [markdown]
# # You have GPUs, prompts and half a second. What do you build?
#
# > *"Design the API in front of a large language model. Clients send a prompt and wait. Behind you is
# > a pool of GPUs. Keep them busy, keep the tail short, treat paying customers better, survive a GPU
# > that dies in the middle of a batch, and tell me how many GPUs 10,000 requests a second need."*
#
# This lab answers that question by building the thing and running it. Every claim in it is a cell.
#
# 20 minutes · difficulty 1 of 3 · needs nothing but Python
#
# Run a cell with **Shift + Enter**.

# %% tags=["parameters"]
gpus = 2

# %%
from labkit.core.settings import Settings
from labkit.live import Live
from labkit.paths import data_dir
from labkit.sim.driver import simulate
from labkit.teach.notebook import cards, diagnostic, exercise, progress, start
from labkit.viz.dock import LoadDock
from labkit.workload import poisson, read_trace, requests, scale, slice, stream, trace_requests

start("00")

# %% [markdown]
# The line above says what answers on this machine: a CUDA GPU if there is one, else PyTorch on the
# CPU cores, else small processes that keep the contract by the clock. The cells are the same on all.
#
# ## First, something moves
#
# Press the button; from then on **space** presses it, too. Each press is one person who wants to
# cross the river.

# %%
LoadDock()

# %% [markdown]
# A request is a passenger, a batch is a crossing, a GPU is a ferry. A crossing takes as long with one
# aboard as with a full boat, so somebody has to decide when to leave. That decision is the first
# third of the interview; what goes wrong around it is the rest.
#
# ## The contract you are handed
#
# `batchstring(inputs: list[str]) -> list[str]` takes 1 to 100 strings and returns one output each, in
# the same order. A call takes 100 ms **whatever the size**, and a GPU runs one at a time. Clients call
# you over HTTP and want an answer within 500 ms, for 95 of 100 requests. Be ready for 100 req/s and
# for 10,000 req/s.
#
# Here it is, on this machine, with real processes in the place of GPUs:

# %% tags=["live", "nbval-ignore-output"]
with Live(gpus=gpus, workers="auto") as live:
    for answer in live.ask(["Is the ferry running today?", "Two tickets, please."]):
        print("LIVE ", answer)

# %% [markdown]
# Would you notice if it did not keep its side? `inputs` went in, `outputs` came back. Return whether the
# call keeps the contract: a list of 1 to 100 strings in, a list of as many strings out.


# %% exercise="00.contract"
def kept(inputs, outputs):
    """Whether this call keeps the contract."""
    # solution
    if not isinstance(outputs, list) or not 1 <= len(inputs) <= 100:
        return False
    if len(outputs) != len(inputs):
        return False
    return all(isinstance(text, str) for text in inputs + outputs)
    # stub
    # return ...
    # end


# %%
exercise("00.contract").check(kept)

# %% [markdown]
# And here is a minute of traffic with the shape of a public trace, through the same decisions under a
# virtual clock:

# %%
rows = list(scale(slice(read_trace(data_dir() / "traces/synthetic_conversation.csv"), 0, 600), 10))
report = simulate(Settings(), trace_requests(rows), gpus=gpus).report()
print(f"{report['answered']:,} of {report['requests']:,} answered, {report['failed']} failed")
latency = report["latency_ms"]
print(f"latency: P50 {latency['p50']:.0f} ms, P95 {latency['p95']:.0f} ms")

# %% [markdown]
# One body of code decided both. It is told the time and never asks it, which is why it can run a
# minute of 10,000 requests a second in a second or two, and then serve real ones unchanged.

# %%
busy = simulate(Settings(), requests(poisson(10_000, 5, stream(1, "arrivals"))), gpus=18).report()
print(f"{busy['answered']:,} answered, P95 {busy['latency_ms']['p95']:.1f} ms")

# %% [markdown]
# ## Three words before anything else
#
# **Model**: the blueprint, a name and a version whose weights lie in storage. **Replica**: hardware, a
# fixed group of GPUs with one version loaded and a state: warming, ready, draining. **Batch**: not a
# thing you own but something that happens in front of a replica. Say these three in the first ten
# minutes; half of all confusion in the round is one of them used for another.
#
# ## Which costume?
#
# The question comes in two. **Narrow**: the function is given and may not change, so only the
# dispatch in front of it is yours, and continuous batching or autoscaling may be out of scope.
# **Open**: the whole serving stack is yours, with KV cache, prefill and decode. The first thing a
# strong candidate does is to find out which one it is.
#
# Sort these openings: `"narrow"`, `"open"`, or `"ask"` when the words do not tell and the right move is
# a question. Answer with a dictionary from letter to word.

# %%
triage = exercise("00.costume")
triage.show()

# %% exercise="00.costume"
# solution
costumes = triage.answers()
# stub
# costumes = ...
# end

# %%
triage.check(costumes)

# %% [markdown]
# ## How the lab works
#
# - **Predict first.** Where a cell asks for a number, say one before you run it. A wrong guess is
#   worth more than a right nod.
# - **Build.** An exercise is a function with a hole. `exercise("01.due_at").check(due_at)` puts your
#   function into the real gateway and shows the *smallest* case on which it fails, as a table and on
#   the dock. `.hint()` gives three hints, one at a time; `.solution()` opens after one attempt.
# - **Go on anyway.** `due_at = use("01.due_at", due_at)` hands back your function once it passes, and
#   the reference until then. No notebook is ever stuck on an earlier one.
# - **Three labels.** A figure is **LIVE** (measured now), **RECORDED** (from a file that says on which
#   device and when) or **PREDICTED** (computed from stated limits).
# - **Say it.** Each notebook ends with thirty seconds to say out loud. The interview is spoken.
#
# ## Where to begin
#
# Six questions, ten minutes. They are not a test; they choose a path.

# %%
diagnostic()

# %% tags=["nbval-ignore-output"]
progress()

# %% [markdown]
# ## Say it out loud
#
# > *Thirty seconds.* "Before I draw anything: may the GPU function change, or is it given? If it is
# > given, the work is the dispatch layer, and the numbers are a hundred a batch, 100 ms a batch and
# > 500 ms end to end. I would start with the batcher, then the capacity sum, then what happens when a
# > GPU dies in the middle of a batch. Which of these would you like to go deep on?"
#
# ## Cards

# %%
cards("00")

# %% [markdown]
# ## Go deeper
#
# `labkit doctor` in a terminal says what this machine can run and how to fix what it cannot. Next:
# **01, when should the ferry leave?**
