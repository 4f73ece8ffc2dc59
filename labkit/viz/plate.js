// A picture drawn elsewhere, in the colours of the page it is on.

function render({ model, el }) {
  const root = html(el, "div", { class: "labkit lk-plate" });
  const unfollow = followTheme(root);
  const draw = () => {
    root.innerHTML = model.get("svg");
  };
  model.on("change:svg", draw);
  draw();
  return () => {
    model.off("change:svg", draw);
    unfollow();
  };
}

export default { render };
