// The lanes: draws what Python computed at one instant after another, in a window of time that the
// viewer chooses. What is past is drawn whole, what is to come as an outline.

const BLOCK = 40;
const LETTER = 7.2;
const LEAST_APART = 70;
const LABEL_APART = 62;
const WORDS_FROM = 14;
const ZOOM = 2;
const LEAST_WINDOW = 2000;

// -- one instant: the twins of lanes_moment.py -----------------------------------------------

function idleTime(panel, at, kinds) {
  let sum = 0;
  for (const gap of panel.gaps)
    if (kinds.includes(gap.kind)) sum += Math.max(Math.min(gap.end, at) - gap.start, 0);
  return sum;
}

function waitingAt(panel, name, at) {
  const [, count, first, longest] = panel.waits[name].findLast((row) => row[0] <= at);
  return [count, Math.max(longest, first === null ? 0 : at - first)];
}

/** The running totals beside the lanes: label, value, look. */
function totalsAt(panel, at) {
  const idle = `${whole(idleTime(panel, at, ["idle", "drain"]))} GPU-ms`;
  const drain = `${whole(idleTime(panel, at, ["drain"]))} GPU-ms`;
  const rows = panel.gangs
    ? [["idle so that one could run", drain, "big"], ["idle in all", idle, ""]]
    : [["idle so far", idle, "big"]];
  const names = Object.keys(panel.waits);
  for (const name of names) {
    const [count, longest] = waitingAt(panel, name, at);
    const label = names.length > 1 ? `${name} waiting` : "waiting";
    rows.push([label, `${count.toLocaleString("en")} · longest ${ms(longest)}`, ""]);
  }
  if (panel.losses) {
    const lost = panel.bars.filter((bar) => bar.lost && bar.end <= at);
    const sum = lost.reduce((total, bar) => total + bar.size, 0);
    rows.push(["lost with a batch", sum.toLocaleString("en"), "red"]);
  }
  return rows;
}

function receiptAt(panel, at) {
  const said = panel.events.filter((event) => event.at <= at);
  const most = said.reduce((rank, event) => Math.max(rank, event.rank), 0);
  const least = at >= panel.horizon ? most : Math.min(most, 1);
  return said.findLast((event) => event.rank >= least)?.text ?? "Nothing has started yet.";
}

function describePanel(panel, at) {
  const title = panel.title ? `${panel.title}: ` : "";
  const rows = totalsAt(panel, at).map(([label, value]) => `${label}: ${value}`).join("; ");
  return `${title}${rows}. ${receiptAt(panel, at)}`;
}

/** Round instants of a window, far enough apart to be read on so many pixels. */
function ticksOf([first, last], width) {
  const most = ((last - first) * LEAST_APART) / width;
  let step = 1000;
  for (let i = 0; step < most; i += 1) step *= i % 3 === 1 ? 2.5 : 2;
  const ticks = [];
  for (let at = Math.ceil(first / step) * step; at <= last; at += step) ticks.push(at);
  return ticks;
}

// -- what is drawn ---------------------------------------------------------------------------

/** The first of the labels that fits into so many pixels. */
const fitting = (labels, width) => labels.find((one) => one.length * LETTER + 6 <= width);

/** Words in the middle of a shape, once the playhead is past them. */
function wordsView(parent, look, boxed) {
  const group = svg(parent, "g", { class: look });
  const box = boxed ? svg(group, "rect", { class: "lk-box", height: 16, rx: 2 }) : null;
  const text = svg(group, "text", { "text-anchor": "middle", "dominant-baseline": "central" });
  let until = Infinity;
  const put = (labels, x, y, width, height) => {
    const words = height < WORDS_FROM ? undefined : fitting(labels, width);
    until = Infinity;
    if (!words) return;
    const middle = x + width / 2;
    setText(text, words);
    set(text, { x: middle, y: y + height / 2 });
    const half = (words.length * LETTER) / 2 + 2;
    if (box) set(box, { x: middle - half, y: y + height / 2 - 8, width: 2 * half });
    until = middle + half - 2;
  };
  const tell = (now) => set(group, { visibility: until <= now ? null : "hidden" });
  return { put, tell };
}

/** One batch: an outline of all of it, and what is done of it. `place` moves, `tell` names it. */
function barView(toCome, done, bar, layout, fills) {
  const look = bar.lost ? "lk-lost" : bar.gang ? "lk-gang" : "lk-one";
  const parts = bar.runs.map(([first, last]) => {
    const y = layout.top + layout.pitch * first;
    const height = layout.pitch * (last - first) + layout.bar;
    const outline = svg(toCome, "rect", { y, height, rx: 2 });
    const group = svg(done, "g", { class: look });
    const fill = bar.lost ? fills.lost : bar.gang ? fills.gang : null;
    const solid = svg(group, "rect", { y, height, rx: 2, ...(fill && { style: `fill: ${fill}` }) });
    const late = bar.late.length ? svg(group, "rect", { y, height, rx: 2, class: "lk-later" }) : null;
    const notch = bar.retry ? svg(group, "path", { class: "lk-notch" }) : null;
    const words = wordsView(group, "lk-on", bar.lost || bar.gang);
    const more = late ? wordsView(group, "lk-on-late", false) : null;
    return { y, height, outline, group, solid, late, notch, words, more };
  });
  const place = (x, shows) => {
    const [start, planned, end] = [x(bar.start), x(bar.planned), x(bar.end)];
    for (const part of parts) {
      const hidden = { visibility: shows(bar) ? null : "hidden" };
      set(part.outline, { x: start + 0.5, width: Math.max(end - start - 1, 1), ...hidden });
      set(part.group, { display: shows(bar) ? null : "none" });
      set(part.solid, { x: start + 0.5, width: Math.max(planned - start - 1, 1) });
      if (part.late) set(part.late, { x: planned, width: Math.max(end - planned - 0.5, 0) });
      if (part.notch) set(part.notch, { d: `M${start + 1} ${part.y}h6l-6 6Z` });
      part.words.put(bar.labels, start, part.y, planned - start, part.height);
      if (part.more) part.more.put(bar.late, planned, part.y, end - planned, part.height);
    }
  };
  const tell = (now) => {
    for (const part of parts) {
      part.words.tell(now);
      if (part.more) part.more.tell(now);
    }
  };
  return { place, tell };
}

function gapView(done, gap, layout) {
  const y = layout.top + layout.pitch * gap.lane;
  const group = svg(done, "g", { class: `lk-gap lk-${gap.kind}` });
  const rect = svg(group, "rect", { y, height: layout.bar, rx: 2 });
  const words = gap.labels.length ? wordsView(group, "lk-on", false) : null;
  let over = Infinity;
  const place = (x, shows) => {
    const [start, end] = [x(gap.start), x(gap.end)];
    // What a drain cost is known when it is over.
    over = gap.kind === "drain" ? end : 0;
    set(group, { display: shows(gap) && end - start > 4 ? null : "none" });
    set(rect, { x: start + 1, width: Math.max(end - start - 2, 0) });
    if (words) words.put(gap.labels, start, y, end - start, layout.bar);
  };
  const tell = (now) => words && words.tell(now < over ? -1 : now);
  return { place, tell };
}

function totalsView(parent, x, top) {
  const rows = [];
  return (told) => {
    let y = top;
    told.forEach(([label, value, look], i) => {
      rows[i] ??= [
        svg(parent, "text", { x, class: "lk-quiet" }),
        svg(parent, "text", { x, class: look ? `lk-total lk-${look}` : "lk-total" }),
      ];
      const [name, number] = rows[i];
      set(name, { y: y + 11 });
      set(number, { y: y + (look === "big" ? 31 : 27) });
      setText(name, label);
      setText(number, value);
      y += BLOCK + (look === "big" ? 6 : 0);
    });
  };
}

/** One pool of GPUs; returns `place(x, shows)` for a new window and `draw(at, x, inside)`. */
function panelView(parent, panel, segments) {
  const { layout } = panel;
  const group = svg(parent, "g", { transform: `translate(0 ${panel.offset})`, class: "lk-panel" });
  if (panel.title) svg(group, "text", { x: 0, y: 12, class: "lk-title" }, panel.title);
  panel.gpus.forEach((gpu, lane) => {
    if (lane % layout.named) return;
    const y = layout.top + layout.pitch * lane + layout.bar / 2 + 4;
    svg(group, "text", { x: 0, y, class: "lk-quiet" }, `GPU ${gpu}`);
  });
  const defs = svg(group, "defs");
  const fills = {
    lost: hatch(defs, "red", { crossed: true }),
    gang: hatch(defs, "purple", { width: 1.8 }),
  };
  const id = `lk-past-${Math.random().toString(36).slice(2, 8)}`;
  const past = svg(svg(defs, "clipPath", { id }), "rect", {
    x: segments.left - 1, y: 0, height: layout.floor + 2,
  });
  const toCome = svg(group, "g", { class: "lk-to-come", "aria-hidden": "true" });
  const done = svg(group, "g", { "clip-path": `url(#${id})`, "aria-hidden": "true" });
  const views = [
    ...panel.gaps.map((gap) => gapView(done, gap, layout)),
    ...panel.bars.map((bar) => barView(toCome, done, bar, layout, fills)),
  ];
  const bottom = layout.top + layout.pitch * panel.gpus.length;
  const head = svg(group, "path", { d: `M0 ${layout.top - 4}V${bottom}`, class: "lk-now" });
  const totals = totalsView(group, segments.totals, layout.top);
  const receipt = svg(group, "text", { x: 0, y: layout.floor + 18, class: "lk-receipt" });
  const draw = (at, x, inside) => {
    set(past, { width: (x(at) - segments.left + 1).toFixed(1) });
    set(head, { transform: `translate(${x(at).toFixed(1)} 0)`, visibility: inside ? null : "hidden" });
    for (const view of views) view.tell(x(at));
    totals(totalsAt(panel, at));
    setText(receipt, receiptAt(panel, at));
  };
  return { place: (x, shows) => views.forEach((view) => view.place(x, shows)), draw };
}

function timeView(parent, segments) {
  const group = svg(parent, "g", {
    transform: `translate(0 ${segments.axis})`, class: "lk-axis",
  });
  const { left, right } = segments;
  svg(group, "rect", {
    x: left - 8, y: -segments.axis, width: right - left + 16, height: segments.height - 8, class: "lk-hit",
  });
  svg(group, "path", { d: `M${left} 8H${right}`, class: "lk-track" });
  const marks = svg(group, "g");
  const head = svg(group, "g", { class: "lk-head" });
  svg(head, "line", { y1: -4, y2: 8 });
  svg(head, "circle", { cy: 8, r: 5.5 });
  const words = svg(head, "text", { y: 28, "text-anchor": "middle" });
  let labels = [];
  const place = (x, window) => {
    marks.replaceChildren();
    labels = ticksOf(window, right - left).map((at) => {
      svg(marks, "path", { d: `M${x(at)} 4V8`, class: "lk-tick" });
      const look = { x: x(at), y: 28, class: "lk-quiet", "text-anchor": "middle" };
      return [x(at), svg(marks, "text", look, ms(at))];
    });
  };
  const draw = (at, x, inside) => {
    set(head, { transform: `translate(${x(at).toFixed(1)} 0)`, visibility: inside ? null : "hidden" });
    setText(words, ms(at));
    for (const [where, label] of labels)
      set(label, { visibility: inside && Math.abs(where - x(at)) <= LABEL_APART ? "hidden" : null });
  };
  return { group, place, draw };
}

/** The whole picture, and the window of time that shows. */
function lanesView(root, segments) {
  const { left, right, horizon } = segments;
  const picture = svg(root, "svg", {
    viewBox: `0 0 ${segments.width} ${segments.height}`, role: "group", "aria-label": "GPU lanes",
  });
  const panels = segments.panels.map((panel) => panelView(picture, panel, segments));
  const axis = timeView(picture, segments);
  let window = segments.window;
  const x = (at) => {
    const inside = Math.min(Math.max(at, window[0]), window[1]);
    return left + ((right - left) * (inside - window[0])) / (window[1] - window[0]);
  };
  const place = () => {
    const shows = (row) => row.end > window[0] && row.start < window[1];
    for (const panel of panels) panel.place(x, shows);
    axis.place(x, window);
    root.dataset.window = window.join(" ");
  };
  /** Show so long a time with this instant at a part of its width. */
  const look = (length, at, part) => {
    const long = Math.min(Math.max(Math.round(length), Math.min(LEAST_WINDOW, horizon)), horizon);
    const first = Math.min(Math.max(Math.round(at - long * part), 0), horizon - long);
    window = [first, first + long];
    place();
  };
  const draw = (at) => {
    const length = window[1] - window[0];
    // A playhead that leaves the window turns the page.
    if (at > window[1]) look(length, at, 0.1);
    else if (at < window[0]) look(length, at, 0.9);
    for (const panel of panels) panel.draw(at, x, true);
    axis.draw(at, x, true);
    root.dataset.at = at;
  };
  place();
  return {
    axis: {
      group: axis.group,
      timeAt: (clientX) => {
        const box = picture.getBoundingClientRect();
        const px = ((clientX - box.left) * segments.width) / box.width;
        const part = Math.min(Math.max((px - left) / (right - left), 0), 1);
        return window[0] + part * (window[1] - window[0]);
      },
    },
    draw,
    zoom: (factor, at) => {
      const length = window[1] - window[0];
      look(length * factor, at, factor < 1 ? 0.5 : (at - window[0]) / length);
    },
    all: () => look(horizon, 0, 0),
    receipt: (at) => segments.panels.map((panel) => receiptAt(panel, at)).join(" "),
    describe: (at) =>
      `${ms(at)}. ${segments.panels.map((panel) => describePanel(panel, at)).join(" ")}`,
  };
}

/** Buttons and keys that zoom; returns how to stop. */
function zoomControls(root, view, player) {
  const then = (act) => () => {
    act();
    player.refresh();
  };
  const nearer = then(() => view.zoom(1 / ZOOM, player.at()));
  const farther = then(() => view.zoom(ZOOM, player.at()));
  const all = then(view.all);
  const group = html(player.row, "span", { role: "group", "aria-label": "zoom", class: "lk-zoom" });
  player.row.insertBefore(group, player.row.querySelector(".lk-note"));
  for (const [words, label, act] of [
    ["−", "zoom out", farther], ["+", "zoom in", nearer], ["all", "show all", all],
  ]) {
    const button = html(group, "button", { type: "button", "aria-label": label }, words);
    button.addEventListener("click", act);
  }
  const keys = { "+": nearer, "=": nearer, "-": farther, "0": all };
  const press = (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  };
  root.addEventListener("keydown", press);
  return () => root.removeEventListener("keydown", press);
}

function replayLanes(root, segments, begin) {
  const view = lanesView(root, segments);
  const player = replay(root, {
    ...segments,
    begin,
    slider: view.axis.group,
    draw: view.draw,
    receipt: view.receipt,
    describe: view.describe,
  });
  scrub(view.axis, player.go);
  const stopZoom = zoomControls(root, view, player);
  return () => {
    player.stop();
    stopZoom();
  };
}

function render({ model, el }) {
  const root = html(el, "div", {
    class: "labkit lk-lanes-widget", role: "group", tabindex: -1, "aria-label": "GPU lanes over time",
    "data-lm-suppress-shortcuts": "true",
  });
  const stopTheme = followTheme(root);
  const build = () => replayLanes(root, model.get("segments"), model.get("at"));
  let stop = build();
  const rebuild = () => {
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
