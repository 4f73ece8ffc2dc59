// The dock: draws the segments that Python computed, at one instant after another.

const GLIDE_SECONDS = 0.35;
const SAIL = 150;

/** The rows of one dock that show at an instant; the twin of `moment` in moment.py. */
function moment(dock, at, badge) {
  const over = (row) =>
    (row.left !== null && row.left <= at) || (row.ended !== null && row.ended <= at);
  const here = dock.passengers.filter((row) => row.since <= at && !over(row));
  const isAboard = (row) => row.boarded !== null && row.boarded <= at;
  const timer = dock.timers.find((row) => row.since <= at && at < row.until);
  const said = dock.events.findLast((event) => event.at <= at);
  const turned = ["rejected", "expired", "cancelled", "failed"];
  return {
    bank: here.filter((row) => !isAboard(row)),
    aboard: here.filter(isAboard),
    out: dock.boats.filter((boat) => boat.start <= at && at < boat.end),
    free: dock.free.findLast(([since]) => since <= at || since === 0)[1],
    waited: timer ? at - timer.arrived : null,
    leaving: dock.boats.findLast((boat) => boat.start <= at && at < boat.start + badge),
    receipt: said ? said.text : "Nobody has left yet.",
    gone: dock.passengers.filter((row) => turned.includes(row.outcome) && row.ended <= at).length,
  };
}

function timerWords(dock, now) {
  if (dock.max_wait === null)
    return now.waited === null ? "no timer" : `no timer; the first has waited ${ms(now.waited)}`;
  if (now.waited === null) return `0 of ${ms(dock.max_wait)}`;
  return `the first has waited ${whole(now.waited)} of ${ms(dock.max_wait)}`;
}

function seatWords(dock, now, at) {
  if (now.free) {
    const more = now.free > 1 ? ` · ${now.free - 1} more free` : "";
    return `${now.aboard.length} of ${dock.max_batch} seats${more}`;
  }
  if (!now.out.length) return "no boat";
  const back = Math.min(...now.out.map((boat) => boat.planned)) - at;
  return `no boat: the next is back in ${ms(Math.max(back, 0))}`;
}

function bankWords(now) {
  const count = now.bank.length;
  const waiting = count === 0 ? "nobody waits here" : count === 1 ? "1 waits" : `${count} wait`;
  return now.gone ? `${waiting} · ${now.gone} turned away` : waiting;
}

function describeDock(dock, now) {
  const title = dock.title ? `${dock.title}: ` : "";
  const boats = `${now.out.length} ${now.out.length === 1 ? "boat" : "boats"} out`;
  const waited = now.waited === null ? "nobody waits" : timerWords(dock, now);
  const seats = `${now.aboard.length} of ${dock.max_batch} seats taken`;
  return `${title}${seats}, ${now.bank.length} on the bank, ${boats}; ${waited}. ${now.receipt}`;
}

/** A rounded bar of which a part is filled. */
function gauge(parent, spot, look) {
  const at = { x: spot.x, y: spot.y, width: spot.width, height: spot.height, rx: spot.height / 2 };
  const outline = svg(parent, "rect", { ...at, class: "lk-gauge" });
  const fill = svg(parent, "rect", { ...at, class: look });
  return (part) => {
    const hidden = spot.width * (1 - Math.min(Math.max(part, 0), 1));
    fill.style.clipPath = `inset(0 ${hidden.toFixed(2)}px 0 0)`;
    return outline;
  };
}

function laneView(parent, dock, spot, lane) {
  const group = svg(parent, "g");
  const fill = gauge(group, spot, "lk-boat");
  const words = svg(group, "text", { x: spot.text_x, y: spot.text_y });
  const right = { x: 740, y: spot.text_y, "text-anchor": "end", class: "lk-quiet" };
  const toGo = svg(group, "text", right);
  const name = dock.gpus ? `GPU ${dock.gpus[lane]}` : "";
  return (boat, at) => {
    const down = !boat && (dock.downs[lane] || []).some(([from, to]) => from <= at && at < to);
    set(group, { class: boat ? "lk-out" : down ? "lk-idle lk-down" : "lk-idle" });
    if (!boat) {
      fill(0);
      const idle = name && spot.roomy ? `${name} is at the dock` : name;
      setText(words, down ? `${name} is down` : idle);
      setText(toGo, "");
      return;
    }
    const left = Math.max(boat.planned - at, 0);
    fill(left / (boat.planned - boat.start));
    const whole = `boat ${boat.id} · ${boat.size} aboard · ${boat.badge}`;
    setText(words, spot.roomy ? whole : `${boat.size} · ${boat.badge}`);
    setText(toGo, ms(left));
  };
}

/** One passenger: a filled disc has paid, a ring has not; a red halo came back from a loss. */
function passengerView(parent, row, place) {
  const look = `lk-who${row.paid ? "" : " lk-free"}${row.returned ? " lk-back" : ""}`;
  const group = svg(parent, "g", { class: look });
  svg(group, "circle", { r: place.radius, class: "lk-disc" });
  svg(group, "circle", { r: place.radius + 2.5, class: "lk-halo" });
  if (place.letters && row.label.length * 7 + 5 <= 2 * place.radius)
    svg(group, "text", {}, row.label);
  return group;
}

function badgeView(parent, right, middle) {
  const group = svg(parent, "g", { class: "lk-badge" });
  const box = svg(group, "rect", { y: middle - 9, height: 18, rx: 9 });
  const word = svg(group, "text", { y: middle + 4.5 });
  return (boat) => {
    set(group, { visibility: boat ? null : "hidden" });
    if (!boat) return;
    const width = 9 * boat.badge.length + 14;
    set(box, { x: right - width, width });
    set(word, { x: right - width / 2 });
    setText(word, boat.badge);
  };
}

/** Where a passenger is between two places, eased; `done` runs from 0 to 1. */
function between([x0, y0], [x1, y1], done) {
  const eased = 1 - (1 - done) ** 3;
  return [x0 + (x1 - x0) * eased, y0 + (y1 - y0) * eased];
}

/** Draws everybody who is on the bank, aboard, or just leaving. */
function crowd(layer, dock, glide) {
  const place = dock.layout;
  const views = new Map();
  const put = (row, [x, y], opacity, state) => {
    if (!views.has(row)) views.set(row, passengerView(layer, row, place));
    set(views.get(row), { transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, opacity });
    views.get(row).dataset.state = state;
    return row;
  };
  return (now, at, still) => {
    const length = still ? 0 : glide;
    const done = (since) => (length ? Math.min((at - since) / length, 1) : 1);
    const shown = new Set();
    now.bank.slice(0, place.bank.length).forEach((row, i) => {
      shown.add(put(row, between(place.entry, place.bank[i], done(row.since)), 1, "bank"));
    });
    for (const row of now.aboard) {
      const from = row.boarded === row.since ? place.entry : place.bank[0];
      shown.add(put(row, between(from, place.seats[row.seat], done(row.boarded)), 1, "aboard"));
    }
    for (const row of dock.passengers) {
      if (row.left === null || row.left > at || at >= row.left + length) continue;
      const [x, y] = place.seats[row.seat];
      const part = done(row.left);
      shown.add(put(row, between([x, y], [x + SAIL, y], part), 1 - part, "leaving"));
    }
    for (const [row, view] of views) {
      if (shown.has(row)) continue;
      view.remove();
      views.delete(row);
    }
  };
}

/** One dock; returns `draw(at, still)` and `now(at)`. */
function dockView(parent, dock, segments) {
  const place = dock.layout;
  const top = place.top;
  const group = svg(parent, "g", { transform: `translate(0 ${dock.offset})`, class: "lk-dock" });
  if (!place.letters) group.classList.add("lk-small");
  if (dock.title) svg(group, "text", { x: 0, y: 12, class: "lk-title" }, dock.title);
  for (const [x, words] of [[0, "bank"], [190, "at the dock"], [508, "on the river"]])
    svg(group, "text", { x, y: top + 14, class: "lk-quiet" }, words);
  for (const x of [176, 490])
    svg(group, "path", { d: `M${x} ${top + 6}V${place.floor}`, class: "lk-rule" });
  svg(group, "path", { d: `M0 ${place.floor + 9}H740`, class: "lk-rule" });
  const { bar } = place;
  const timed = dock.max_wait !== null;
  const timer = svg(group, "g", timed ? {
    role: "progressbar", "aria-label": "how long the first has waited",
    "aria-valuemin": 0, "aria-valuemax": Math.max(Math.floor(dock.max_wait / 1000), 1),
  } : {});
  const spot = { x: bar.left, y: bar.y, width: bar.right - bar.left, height: bar.height };
  const fill = gauge(timer, spot, "lk-timer");
  if (!timed) fill(0).classList.add("lk-none");
  const waited = svg(group, "text", { x: bar.left, y: bar.y + 28 });
  const boat = svg(group, "g");
  svg(boat, "polygon", { points: place.hull.join(" "), class: "lk-hull" });
  for (const [cx, cy] of place.seats)
    svg(boat, "circle", { cx, cy, r: place.radius, class: "lk-seat" });
  const quiet = { y: place.floor - 10, class: "lk-quiet" };
  const seats = svg(group, "text", { x: bar.left, ...quiet });
  const bank = svg(group, "text", { x: 0, ...quiet });
  const lanes = place.lanes.map((lane, i) => laneView(group, dock, lane, i));
  const more = svg(group, "text", { x: 508, y: place.floor - 2, class: "lk-quiet" });
  const people = crowd(
    svg(group, "g", { "aria-hidden": "true" }), dock, GLIDE_SECONDS * segments.pace);
  const badge = badgeView(group, bar.right, bar.y - 18);
  const receipt = svg(group, "text", { x: 0, y: place.floor + 29, class: "lk-receipt" });
  const now = (at) => moment(dock, at, segments.badge);
  const draw = (at, still) => {
    const shown = now(at);
    if (timed) {
      fill((shown.waited || 0) / Math.max(dock.max_wait, 1));
      const most = Math.min(shown.waited || 0, dock.max_wait);
      const valuetext = timerWords(dock, shown);
      set(timer, { "aria-valuenow": Math.floor(most / 1000), "aria-valuetext": valuetext });
    }
    setText(waited, timerWords(dock, shown));
    set(waited, { class: shown.waited === null ? "lk-quiet" : "" });
    set(boat, { class: shown.free ? "" : "lk-away" });
    setText(seats, seatWords(dock, shown, at));
    setText(bank, bankWords(shown));
    lanes.forEach((lane, i) => lane(shown.out.find((one) => one.lane === i), at));
    const hidden = shown.out.filter((one) => one.lane >= lanes.length).length;
    setText(more, hidden ? `and ${hidden} more out` : "");
    people(shown, at, still);
    badge(shown.leaving);
    setText(receipt, shown.receipt);
  };
  return { dock, draw, now };
}

/** The shared time axis over a window [from, to]; returns `draw(at, from, to)` and `timeAt(x)`. */
function axisView(parent, segments) {
  const { axis } = segments;
  const group = svg(parent, "g", {
    transform: `translate(0 ${axis.offset})`, class: "lk-axis",
  });
  const last = axis.rows[axis.rows.length - 1];
  svg(group, "rect", {
    x: axis.left - 8, y: 0, width: axis.right - axis.left + 16, height: last + 14, class: "lk-hit",
  });
  const marks = [];
  const mark = (at, node) => marks.push([at, node]);
  segments.docks.forEach((dock, i) => {
    const y = axis.rows[i];
    const title = dock.title.length <= 24 ? dock.title : `${dock.title.slice(0, 23)}…`;
    if (title) svg(group, "text", { x: 0, y: y + 4, class: "lk-quiet" }, title);
    svg(group, "path", { d: `M${axis.left} ${y}H${axis.right}`, class: "lk-track" });
    for (const boat of dock.boats)
      mark(boat.start, svg(group, "path", { d: `M0 ${y - 8}V${y - 1}`, class: "lk-tick" }));
    for (const row of dock.passengers)
      mark(row.since, svg(group, "circle", { cy: y + 6, r: 1.3, class: "lk-dot" }));
  });
  const quiet = { y: last + 24, class: "lk-quiet" };
  const first = svg(group, "text", { x: axis.left, ...quiet });
  const end = svg(group, "text", { x: axis.right, ...quiet, "text-anchor": "end" });
  const head = svg(group, "g", { class: "lk-head" });
  svg(head, "line", { y1: axis.rows[0] - 11, y2: last });
  svg(head, "circle", { cy: last, r: 5.5 });
  const words = svg(head, "text", { y: last + 24 });
  const width = axis.right - axis.left;
  let view = [0, segments.horizon];
  let placed = null;
  const xOf = (at) => axis.left + (width * (at - view[0])) / (view[1] - view[0]);
  const place = () => {
    for (const [at, node] of marks) {
      const visible = at >= view[0] && at <= view[1];
      set(node, { visibility: visible ? null : "hidden", transform: `translate(${xOf(at).toFixed(1)} 0)` });
    }
  };
  const draw = (at, from = 0, to = segments.horizon) => {
    view = [from, to];
    if (placed !== `${from} ${to}`) place();
    placed = `${from} ${to}`;
    const x = xOf(at);
    const near = axis.right - x;
    set(head, { transform: `translate(${x.toFixed(1)} 0)` });
    set(words, { "text-anchor": near < 30 ? "end" : "middle" });
    setText(words, ms(at));
    setText(first, x - axis.left > 40 ? (from ? ms(from) : "0") : "");
    setText(end, near > 90 ? ms(to) : "");
  };
  const timeAt = (clientX) => {
    const box = group.ownerSVGElement.getBoundingClientRect();
    const x = ((clientX - box.left) * segments.width) / box.width;
    return view[0] + ((x - axis.left) / width) * (view[1] - view[0]);
  };
  return { group, draw, timeAt };
}

/** The picture of all docks and their axis. */
function drawing(root, segments, label) {
  const picture = svg(root, "svg", {
    viewBox: `0 0 ${segments.width} ${segments.height}`, role: "group", "aria-label": label,
  });
  const docks = segments.docks.map((dock) => dockView(picture, dock, segments));
  const axis = axisView(picture, segments);
  return {
    picture,
    axis,
    draw: (at, still) => docks.forEach((view) => view.draw(at, still)),
    receipt: (at) => docks.map((view) => view.now(at).receipt).join(" "),
    describe: (at) =>
      `${ms(at)}. ${docks.map((view) => describeDock(view.dock, view.now(at))).join(" ")}`,
  };
}

function replayDock(root, segments, begin) {
  const view = drawing(root, segments, "the dock");
  const player = replay(root, {
    ...segments,
    begin,
    slider: view.axis.group,
    draw: (at, still) => {
      view.draw(at, still);
      view.axis.draw(at);
      root.dataset.at = at;
    },
    receipt: view.receipt,
    describe: view.describe,
  });
  scrub(view.axis, player.go);
  return player.stop;
}

function render({ model, el }) {
  const root = html(el, "div", {
    class: "labkit lk-dock-widget", role: "group", tabindex: -1, "aria-label": "a ferry dock",
    "data-lm-suppress-shortcuts": "true",
  });
  const stopTheme = followTheme(root);
  const build = () =>
    model.get("mode") === "load"
      ? loadDock(root, model)
      : replayDock(root, model.get("segments"), model.get("begin") ?? 0);
  let stop = build();
  const rebuild = () => {
    if (model.get("mode") === "load") return;
    stop();
    root.replaceChildren();
    stop = build();
  };
  model.on("change:segments", rebuild);
  return () => {
    model.off("change:segments", rebuild);
    stop();
    stopTheme();
    root.remove();
  };
}

export default { render };
