# %% [markdown]
# # The whole board, behind a door
#
# > *"Draw me the whole system. Where does my request go, and what do I see when a GPU dies under it?
# > Then tell me which number you would put on the wall."*
#
# **You will** start the server that the earlier notebooks built in pieces, talk to it as a stranger
# would, send it a crowd, kill a GPU in the middle, and check its books against the crowd's own. It is a
# tour: you predict, press and read, and there is nothing to build or to be marked.
#
# 45 minutes · difficulty 2 of 3 · after 06

# %% tags=["parameters"]
gpus = 4
crowd_rps = 400
crowd_seconds = 4

# %% extras="http"
from time import sleep

from labkit.teach.notebook import cards, start
from labkit.teach.served import serve
from labkit.viz import load_picture

try:
    from openai import AuthenticationError, OpenAI
except ImportError:
    from labkit.teach.thin_client import AuthenticationError, OpenAI

start("16")

# %% [markdown]
# ## The board
#
# Solid lines carry a request, dotted ones carry control. Before you read on, put your finger on the
# one place that knows which request is on which GPU.
#
# ```text
# clients    openai, curl, a load
#   |  ^
#   v  |     requests down, answers up
# door       key -> tenant, tier
#   |  :     idempotency, depth limit
#   |  :
#   v  :     depth and drain rate, up
# gateway    returned > paid > free
#   |  :     batcher: full, or due
#   |  :     dispatcher: a GPU with room
#   |  :     mapping: request -> GPU
#   v  :     lost: back to the head
# GPUs       one batch each
# ```
#
# The mapping table stands in the gateway, and nowhere else. The door knows *who* asks, and whether it
# has been asked before; the gateway knows *where* the work is; a GPU knows only its batch.
#
# ## Open it
#
# `labkit serve` is this whole board as one process, with one more process in the place of each GPU.
# It starts on a free port with three keys made for the occasion, and ends with this kernel.

# %% tags=["live", "nbval-ignore-output"]
server = serve(gpus)
print(f"LIVE  process {server.pid}, a free port of this machine, keys for {', '.join(server.keys)}")
for row in server.gpus():
    print(f"LIVE  GPU {row['gpu']}: {row['state']}, model {row['model']}, process {row['pid']}")

# %% [markdown]
# And here is the board again, with its numbers in it. It looks at the server by itself, so leave it in
# view: what you do further down moves it.

# %% tags=["live", "nbval-ignore-output"]
board = server.board()
board

# %% [markdown]
# ## Ask like a stranger
#
# This is OpenAI's own client, where it is installed, with another address; nothing else about it
# knows the lab. Where it is not, a page of `urllib` stands in under the same name.

# %% tags=["live", "nbval-ignore-output"]
client = OpenAI(base_url=f"{server.url}/v1", api_key=server.keys["paid"])
print("LIVE ", OpenAI.__module__.split(".")[0])
question = "When does the ferry leave?"
answer = client.completions.create(model="ferry", prompt=question)
print("LIVE ", answer.choices[0].text, "|", answer.choices[0].finish_reason)

# %% [markdown]
# The answer ends in a tag of its own prompt, so that somebody else's would show. Now the same as a
# stream. How many pieces do you expect, and when does the first one come?

# %% tags=["live", "nbval-ignore-output", "answer"]
pieces = [
    event.choices[0].text
    for event in client.completions.create(model="ferry", prompt=question, stream=True)
]
print("LIVE ", pieces)

# %% [markdown]
# The worker behind this door computes a whole batch at a time, so all the pieces come together, at
# its end. A stream says how an answer is *written*, not how it is computed: pieces that trickle need
# a worker that works in steps.
#
# ## A wrong key
#
# A refusal is part of the contract. The client turns the status into a class, and the body has a code
# for a program and a sentence for a person.

# %% tags=["live", "nbval-ignore-output"]
try:
    OpenAI(base_url=f"{server.url}/v1", api_key="guess").completions.create(
        model="ferry", prompt=question
    )
except AuthenticationError as refused:
    print(f"LIVE  {type(refused).__name__}: {refused.status_code}, {refused.code}")

# %% [markdown]
# ## The same wish twice
#
# A client that loses patience sends its request again. Both carry one **idempotency key**. Predict:
# does the second one go aboard a boat, and what do the two bodies have in common?

# %% tags=["live", "nbval-ignore-output", "answer"]
order = {"model": "ferry", "prompt": "One ticket, please."}
key = {"idempotency-key": "order-17"}
first = server.ask("/v1/completions", order, headers=key)
again = server.ask("/v1/completions", order, headers=key)
other = server.ask("/v1/completions", {**order, "prompt": "Two."}, headers=key)
print("LIVE  same body:", first.text == again.text)
print("LIVE  replayed: ", again.headers.get("idempotent-replayed"))
print(f"LIVE  the key with another wish: {other.status}, {other.json['error']['code']}")

# %% [markdown]
# The second call never reached a GPU: the recorded bytes were sent again, under a header that says so.
# And the key stands for *one* wish. With another body it is refused, since whoever reuses it has a
# fault, and a guess would hide it.
#
# ## Read the counters
#
# Everything so far has been counted at the door. Say first, for four numbers: calls answered, calls
# replayed, keys nobody has, requests that went aboard a batch. (`/metrics` has them all.)

# %% tags=["live", "nbval-ignore-output", "answer"]
before = server.counters()
for name, value in before.items():
    if value and name.startswith(("calls", "idempotent", "unknown", "batch")):
        print(f"LIVE  {name:46} {value:g}")

# %% [markdown]
# One call more was answered than went aboard: the replay. Two numbers that *nearly* agree are the
# best kind, for the difference has a name, and the day it has none something is broken.
#
# ## A crowd, and a death
#
# Now a load that waits for nobody: requests leave at instants drawn beforehand, whether or not the
# earlier ones have been answered, and latency counts from those instants. A load that waits for its
# answers would slow down just when the server does, and never see the queue.
#
# Halfway through, the GPU with the most aboard is killed. Commit: how many of the crowd get no answer?
# How much later than the others do those aboard arrive? Which number on the board never goes back to
# zero?

# %% tags=["live", "nbval-ignore-output"]
board

# %% tags=["live", "nbval-ignore-output", "answer"]
crowd = server.offer(crowd_rps, crowd_seconds, keyed=0.1)
sleep(crowd_seconds / 2)
busiest = max(server.gpus(), key=lambda row: row["aboard"])
server.kill(busiest["gpu"])
print(f"LIVE  GPU {busiest['gpu']} is dead, with {busiest['aboard']} aboard")

# %% tags=["live", "nbval-ignore-output", "answer"]
books = crowd.result()
told = books.report()
latency = told["latency_ms"]
print(f"LIVE  {told['offered']} asked, {told['answered']} answered, {told['lost']} got no answer")
print(f"LIVE  {told['wrong_tag']} got somebody else's; statuses {told['statuses']}")
print(
    f"LIVE  P50 {latency['p50']:.0f} ms, P95 {latency['p95']:.0f} ms, max {latency['max']:.0f} ms"
)

# %% tags=["live", "nbval-ignore-output", "answer"]
load_picture(books)

# %% [markdown]
# Every answer is a dot, at the instant at which its request was due. The bump is the boat
# that sank: its passengers crossed twice. Its height is what was lost of the first crossing, and one
# crossing more. No client retried, for no client was told. A client sees a slower answer, and the
# reserve in the budget is what made it one and not an error.
#
# ## Whose books are right?
#
# The crowd kept its own. The server kept its own. Nobody copied.

# %% tags=["live", "nbval-ignore-output", "answer"]
after = server.counters()


def grew(name, label=""):
    """By how much the counters of this name, and with this label, grew."""
    mine = [one for one in after if one.startswith(name) and label in one]
    return sum(round(after[one] - before.get(one, 0)) for one in mine)


print(f"LIVE  answered: {told['answered']} by the crowd, {grew('calls', 'answered')} by the server")
print(f"LIVE  went aboard {grew('batch_rows')}, came back {grew('returned_rows')}")
print(f"LIVE  batches of those who had been lost: {grew('batches', 'returned')}")

# %% [markdown]
# Those who went aboard and did not come back are those who sank; each of them went aboard once more.
# *Computed twice, answered once*: the sentence from 06, as a difference of two counters. It is the
# number that stays on the board, under *out again*:

# %% tags=["live", "nbval-ignore-output", "answer"]
board

# %% [markdown]
# And the receipt of the boat that took them says why it left:

# %% tags=["live", "nbval-ignore-output"]
for receipt in server.receipts():
    if receipt["reason"] == "returned":
        print(f"LIVE  batch {receipt['batch']} on GPU {receipt['gpu']}: {receipt['size']} aboard,")
        print(f"LIVE  the oldest waited {receipt['oldest_age_ms']:.0f} ms in all,")
        print(f"LIVE  {receipt['slack_ms']:.0f} ms left of the budget when this crossing is done")

# %% [markdown]
# ## Your turn at the switch
#
# One button a GPU. The next cell sends another crowd and returns at once, so press while it is on its way.
# Kill two. Run it again and kill all four: what do you expect to see then, and in which of the numbers?

# %% tags=["live", "nbval-ignore-output"]
crowd = server.offer(crowd_rps, 2 * crowd_seconds, seed=17)
sleep(0.5)
board

# %% [markdown]
# When the crowd is home, read its books. A bump is a death, and you know when you pressed.

# %% tags=["live", "nbval-ignore-output"]
books = crowd.result()
told = books.report()
print(f"LIVE  {told['offered']} asked, {told['answered']} answered, {told['lost']} got no answer")
print(f"LIVE  {told['wrong_tag']} got somebody else's; statuses {told['statuses']}")
print("LIVE  restarts:", {row["gpu"]: row["restarts"] for row in server.gpus()})

# %% tags=["live", "nbval-ignore-output"]
load_picture(books)

# %% [markdown]
# Did all four cost an answer? A process is back in a moment, and the queue held everybody meanwhile,
# so it was one more delay. A real GPU is away for minutes. Then the queue grows to its depth limit, or
# the model counts as having no replica, and the door refuses: 429 or 503, each with the seconds after
# which to come back. What it never does is make up an answer, or give one twice. That is consistency
# before availability, chosen on purpose, and you should say so before you are asked.
#
# ## One number for the wall
#
# You may wake somebody for one thing. GPUs in service? Utilization? Errors? Think of the death above:
# which of them would have rung, and should it have?
#
# The wall shows what a *client* feels: the share of calls answered within the budget, per tier. The
# histogram of `/metrics` has it, as the bar that ends at the budget over all. Depth and what is in flight
# stand beside it, for they say what will be felt next. A dead GPU that nobody felt is a ticket for the
# morning. Guess the share first: you have killed some GPUs by now.

# %% tags=["live", "nbval-ignore-output", "answer"]
for tier, share in server.within(0.5).items():
    print(f"LIVE  {tier:5} {share:8.3%} answered within 500 ms")
for name, value in server.counters().items():
    if name.startswith(("queue_depth", "gpus_ready", "in_flight", "answer_seconds_count")):
        print(f"LIVE  {name:48} {value:g}")

# %% [markdown]
# That is the server's clock, from the last byte it read to the answer, and a refusal is no answer: on
# your wall it would stand as a second share, of calls that were refused.

# %% [markdown]
# ## Close it

# %% tags=["live", "nbval-ignore-output"]
print("LIVE  everybody was answered; exit code", server.stop())

# %% [markdown]
# ## Say it out loud
#
# > *Thirty seconds.* "A request comes through a door that knows the key, so the tenant and the tier,
# > looks up its idempotency key and checks the depth. Then it waits in a queue of its tier; a batch
# > leaves when it is full or its oldest is due, and only for a GPU that has a place. A table says who
# > is on which GPU, so when one dies its passengers go back to the head, and the client sees a slower
# > answer. I page on calls answered within the budget, and I check the door's counters against the
# > clients'."
#
# Then the two follow-ups:
#
# 1. *"Half your GPUs just died. Protect the objective. What happens in which order?"*
# 2. *"Your dashboard says all is well and a customer says it is not. Who is right?"*
#
# <details><summary>What a strong answer contains</summary>
#
# 1. At once, by itself: the mapping names who was aboard, they go to the head of the queue, and half
#    the GPUs take them. Then the queue deepens, and the door answers by depth: free traffic is refused
#    first, with a Retry-After from the measured drain rate, and paid keeps its objective. New GPUs
#    take minutes, so they are the end of this story and not its first move.
# 2. Perhaps both. Ask where the clock starts: a server that times from the moment it *read* a request
#    misses the wait before that, and a load that waits for its answers misses the queue. Look for one
#    tenant or one GPU inside a healthy average. Then compare the client's books with the server's: a
#    difference that has no name is the fault.
#
# </details>
#
# ## Cards

# %%
cards("16")

# %% [markdown]
# ## Go deeper
#
# The same from two terminals: `labkit serve` in one, and in the other, with the key that it shows,
# `labkit loadtest --key KEY --rate 1000 --seconds 10 --picture load.png`; `curl` for `/metrics`. The
# door is `labkit/live/http/front.py`, the way of a request through the gateway is
# `labkit/core/gateway.py`, and each reads from top to bottom.
