// You are the load: each press boards a real gateway, which decides; this draws what it decided.
// Instants are the browser's clock, so that every view of one widget shows the same moment.

const WINDOW = 20e6;
const SETTLE = 1e6;
const NEVER = 1e15;

function loadDock(root, model) {
  const reduced = matchMedia("(prefers-reduced-motion: reduce)");
  const voice = speaker(root);
  const row = html(root, "div", { class: "lk-controls" });
  const board = html(row, "button", { type: "button", class: "lk-board" }, "board");
  const again = html(row, "button", { type: "button" }, "start again");
  html(row, "span", { class: "lk-note" }, "space boards, too");
  let view = null;
  let frame = null;
  let timer = null;
  let told = "";

  const clock = () => Math.round((performance.timeOrigin + performance.now()) * 1000);
  const time = () => {
    const origin = model.get("origin");
    return origin ? Math.max(clock() - origin, 0) : 0;
  };
  const show = () => {
    const at = time();
    view.draw(at, reduced.matches);
    view.axis.draw(at, Math.max(at - WINDOW, 0), Math.max(at, WINDOW));
    root.dataset.at = at;
    const receipt = view.receipt(at);
    if (receipt !== told) voice.say(receipt);
    told = receipt;
    return at;
  };
  const loop = () => {
    const at = show();
    const busy = model.get("due_at") < NEVER || at < model.get("segments").horizon + SETTLE;
    frame = busy && model.get("origin") && !document.hidden ? requestAnimationFrame(loop) : null;
  };
  const wake = () => {
    if (frame === null) frame = requestAnimationFrame(loop);
  };
  // The gateway says when it has work next: one timer, as every shell has.
  const arm = () => {
    clearTimeout(timer);
    const due = model.get("due_at");
    if (due >= NEVER || !model.get("origin")) return;
    // A timer may fire early; the gateway is told no instant before the one it asked for.
    const asked = model.get("origin") + due;
    const tick = () => model.send({ type: "tick", at: Math.max(clock(), asked) });
    timer = setTimeout(tick, Math.max(due - time(), 0) / 1000);
  };
  const rebuild = () => {
    if (view) view.picture.remove();
    view = drawing(root, model.get("segments"), "the dock, and you are the load");
    root.insertBefore(view.picture, row);
    arm();
    show();
    wake();
  };
  const press = () => model.send({ type: "board", at: clock() });
  const key = (event) => {
    if (event.key !== " " || event.repeat || event.target.tagName === "BUTTON") return;
    event.preventDefault();
    event.stopPropagation();
    press();
  };
  const seen = () => !document.hidden && wake();
  const forget = () => model.send({ type: "again" });
  board.addEventListener("click", press);
  again.addEventListener("click", forget);
  root.addEventListener("keydown", key);
  document.addEventListener("visibilitychange", seen);
  model.on("change:segments", rebuild);
  rebuild();
  return () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    voice.stop();
    root.removeEventListener("keydown", key);
    document.removeEventListener("visibilitychange", seen);
    model.off("change:segments", rebuild);
  };
}
