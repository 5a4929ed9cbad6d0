// The timeline of one step: a lane each for compute, compression and the network's rounds. Wheel, pinch and drag zoom.
function laneChart(holder, spans) {
  const lanes = [...new Set(spans.map((span) => span[0]))];
  const end = Math.max(...spans.map((span) => span[3]), 1e-6);
  let view = [0, end];
  const figure = node("figure", { "data-chart": "timeline" });
  const controls = node("div", { class: "controls" });
  for (const [label, act] of [["zoom in", () => zoom(0.5, 0.5)], ["zoom out", () => zoom(0.5, 2)], ["earlier", () => pan(-0.3)],
    ["later", () => pan(0.3)], ["all", () => set(0, end)]]) {
    const button = node("button", { type: "button" }, label);
    button.addEventListener("click", act);
    controls.append(button);
  }
  holder.append(controls, figure);

  function set(from, to) {
    const width = Math.max(end * 1e-4, Math.min(end, to - from));
    const start = Math.max(0, Math.min(end - width, from));
    view = [start, start + width];
    draw(figure.clientWidth);
  }
  const zoom = (place, factor) => {
    const at = view[0] + place * (view[1] - view[0]);
    set(at - place * (view[1] - view[0]) * factor, at + (1 - place) * (view[1] - view[0]) * factor);
  };
  const pan = (share) => { const shift = share * (view[1] - view[0]); set(view[0] + shift, view[1] + shift); };

  const fingers = new Map();
  let grabbed = null;
  const placeOf = (clientX) => { const box = figure.getBoundingClientRect(); return (clientX - box.left) / box.width; };
  figure.addEventListener("wheel", (event) => { event.preventDefault(); zoom(placeOf(event.clientX), event.deltaY > 0 ? 1.25 : 0.8); }, { passive: false });
  figure.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, event.clientX); grab(); figure.setPointerCapture(event.pointerId); });
  for (const kind of ["pointerup", "pointercancel"]) figure.addEventListener(kind, (event) => { fingers.delete(event.pointerId); grab(); });
  function grab() { grabbed = { view: [...view], places: [...fingers.values()].map(placeOf) }; }
  figure.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    fingers.set(event.pointerId, event.clientX);
    const now = [...fingers.values()].map(placeOf), before = grabbed.places, width = grabbed.view[1] - grabbed.view[0];
    if (now.length === 1) { const shift = (before[0] - now[0]) * width; set(grabbed.view[0] + shift, grabbed.view[1] + shift); return; }
    const spread = Math.abs(before[0] - before[1]) / Math.max(0.02, Math.abs(now[0] - now[1]));
    const middle = grabbed.view[0] + (before[0] + before[1]) / 2 * width, place = (now[0] + now[1]) / 2;
    set(middle - place * width * spread, middle + (1 - place) * width * spread);
  });

  function draw(width) {
    const laneHeight = 44, height = lanes.length * laneHeight + 40, bottom = lanes.length * laneHeight;
    const x = scale(view[0], view[1], 0, width, false);
    const drawing = shape("svg", { class: "lanes", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "timeline of one step" });
    for (const at of ticks(view[0], view[1], width < 500 ? 4 : 8)) {
      drawing.append(shape("line", { class: "grid", x1: x(at), x2: x(at), y1: 0, y2: bottom }),
        shape("text", { x: x(at) + 2, y: bottom + 16 }, number(at)));
    }
    drawing.append(shape("text", { x: width / 2, y: height - 6, "text-anchor": "middle" }, "milliseconds since the step's first span"));
    for (const [index, lane] of lanes.entries()) {
      for (const [, name, start, stop] of spans.filter((span) => span[0] === lane && span[3] >= view[0] && span[2] <= view[1])) {
        const from = Math.max(0, x(start)), to = Math.min(width, x(stop));
        const block = shape("rect", { class: "span", "data-lane": lane, x: from, y: index * laneHeight + 20, rx: 2, height: 18,
          width: Math.max(1, to - from), fill: colour(index), stroke: "var(--panel)", "stroke-width": 0.5, "fill-opacity": 0.8 });
        block.addEventListener("pointermove", (event) => showTip(event, `${lane}: ${name}, ${number(stop - start)} ms from ${number(start)} ms`));
        block.addEventListener("pointerleave", hideTip);
        drawing.append(block);
      }
      drawing.append(shape("text", { class: "name", x: 2, y: index * laneHeight + 15 }, lane));
    }
    figure.replaceChildren(drawing);
  }
  redrawOnResize(figure, draw);
}
