// Playback, shared by every widget that replays segments: the clock, the controls, the keyboard.
// It knows nothing of what is drawn.

const SPEEDS = [0.25, 0.5, 1, 2, 4];
const REDUCED_STEP_MS = 800;

/**
 * A replay of `horizon` microseconds: `draw(at, still)` at every change, `receipt(at)` says what
 * happened last, `describe(at)` what is to be seen. Nothing is drawn between two places while it
 * stands still. `slider` is the SVG group that shows the time axis; `begin` where it starts.
 */
function replay(root, options) {
  const { horizon, pace, instants, draw, receipt, describe, slider, begin = 0 } = options;
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  const voice = speaker(root);
  let at = begin;
  let frame = null;
  let timer = null;
  let before = 0;
  let told = receipt(begin);

  const row = html(root, "div", { class: "lk-controls", role: "group", "aria-label": "replay" });
  const play = html(row, "button", { type: "button", class: "lk-play" });
  const back = html(row, "button", { type: "button", "aria-label": "one step back" }, "‹ step");
  const next = html(row, "button", { type: "button", "aria-label": "one step on" }, "step ›");
  const speed = html(row, "select", { "aria-label": "speed" });
  for (const value of SPEEDS) html(speed, "option", { value }, `${value}×`);
  speed.value = "1";
  const slow = Math.round(1e6 / pace);
  const pacing = slow >= 2 ? `1× is ${slow.toLocaleString("en")} times slower than real` : "";
  html(row, "span", { class: "lk-note" }, pacing);

  const playing = () => frame !== null || timer !== null;
  const show = () => {
    draw(at, reduced.matches || !playing());
    setText(play, playing() ? "❚❚ pause" : "▶ play");
    set(slider, { "aria-valuenow": Math.floor(at / 1000), "aria-valuetext": ms(at) });
    const now = receipt(at);
    if (now !== told) voice.say(now);
    told = now;
  };
  const pause = () => {
    const was = playing();
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    frame = timer = null;
    if (was) show();
  };
  const go = (to) => {
    pause();
    at = Math.min(Math.max(Math.round(to), 0), horizon);
    told = receipt(at); // What is to be seen is said instead.
    show();
    voice.say(describe(at));
  };
  const later = () => instants.find((instant) => instant > at) ?? horizon;
  const earlier = () => instants.findLast((instant) => instant < at) ?? 0;
  const advance = (to) => {
    at = Math.min(to, horizon);
    const over = at >= horizon;
    if (over) frame = timer = null;
    show();
    return !over;
  };
  const tick = (now) => {
    // A frame's own time may lie before the press that asked for it.
    const elapsed = Math.min(Math.max(now - before, 0), 100);
    before = now;
    frame = requestAnimationFrame(tick);
    if (!advance(at + (elapsed / 1000) * pace * Number(speed.value))) cancelAnimationFrame(frame);
  };
  const hop = () => {
    timer = setTimeout(hop, REDUCED_STEP_MS / Number(speed.value));
    const pending = timer;
    if (!advance(later())) clearTimeout(pending);
  };
  const start = () => {
    if (at >= horizon) at = 0;
    before = performance.now();
    if (reduced.matches) timer = setTimeout(hop, REDUCED_STEP_MS / Number(speed.value));
    else frame = requestAnimationFrame(tick);
    show();
  };
  const toggle = () => (playing() ? pause() : start());
  const keys = {
    " ": toggle,
    ArrowRight: () => go(later()),
    ArrowLeft: () => go(earlier()),
    ArrowUp: () => go(later()),
    ArrowDown: () => go(earlier()),
    Home: () => go(0),
    End: () => go(horizon),
  };
  const press = (event) => {
    if (event.target === speed || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.tagName === "BUTTON") return;
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  };
  play.addEventListener("click", toggle);
  back.addEventListener("click", keys.ArrowLeft);
  next.addEventListener("click", keys.ArrowRight);
  root.addEventListener("keydown", press);
  const stopWatching = whenHidden(root, pause);
  set(slider, {
    role: "slider",
    tabindex: 0,
    "aria-label": "time",
    "aria-valuemin": 0,
    "aria-valuemax": Math.floor(horizon / 1000),
  });
  show();
  return {
    row,
    at: () => at,
    refresh: show,
    go,
    stop: () => {
      pause();
      voice.stop();
      stopWatching();
      root.removeEventListener("keydown", press);
    },
  };
}

/** Let a pointer drag the playhead; the listeners go when the axis does. */
function scrub(axis, go) {
  let held = false;
  const down = (event) => {
    held = true;
    axis.group.setPointerCapture(event.pointerId);
    go(axis.timeAt(event.clientX));
  };
  const move = (event) => held && go(axis.timeAt(event.clientX));
  const up = () => (held = false);
  const listeners = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up };
  for (const name in listeners) axis.group.addEventListener(name, listeners[name]);
}
