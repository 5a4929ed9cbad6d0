// The page: which sections there are, and what each says when a record has nothing for it.
const data = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");

function section(id, title, note) {
  const made = node("section", { id }, node("h2", {}, title));
  if (note) made.append(node("p", { class: "note" }, note));
  page.append(made);
  return made;
}
function grid(holder, columns, rows) {
  const head = node("tr", {}, ...columns.map((column) => node("th", column.text ? { class: "text" } : {}, column.title)));
  const body = rows.map((row) => node("tr", row.style ? { class: row.style } : {},
    ...columns.map((column) => node("td", column.text ? { class: "text" } : {}, String(column.show(row))))));
  holder.append(node("div", { class: "scroll" }, node("table", {}, node("thead", {}, head), node("tbody", {}, ...body))));
}
function smooth(points) {
  return points.map((point, index) => {
    const near = points.slice(Math.max(0, index - 4), index + 1).filter((entry) => entry[1] !== null);
    return [point[0], near.length ? near.reduce((sum, entry) => sum + entry[1], 0) / near.length : null];
  });
}
// A chooser among the runs (or steps) that have something to show.
function chooser(holder, label, entries, show) {
  const body = node("div");
  const update = (index) => { body.replaceChildren(); show(body, entries[index].value); };
  if (entries.length > 1) {
    const select = node("select", { "aria-label": label }, ...entries.map((entry, index) => node("option", { value: index }, entry.label)));
    select.addEventListener("change", () => update(Number(select.value)));
    holder.append(node("div", { class: "controls" }, select));
  } else holder.append(node("p", { class: "note" }, entries[0].label));
  holder.append(body);
  update(0);
}
const percent = (value) => value === null || value === undefined ? "–" : `${number(100 * value)}%`;
const times = (value) => value === null || value === undefined ? "–" : `${number(value)}x`;

document.getElementById("title").textContent = data.title;
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

if (data.standings.length) {
  const finished = data.standings.filter((row) => row.ms_per_step !== null && row.method !== "noop" && row.status === "ok");
  const best = [...finished].sort((a, b) => a.ms_per_step - b.ms_per_step)[0];
  if (best) document.getElementById("verdict").textContent = `Fastest: ${best.method}, ${number(best.ms_per_step)} ms a step`
    + (best.over_dense ? `, ${number(best.over_dense)} times the speed of plain DDP` : "")
    + (best.of_limit ? `, ${percent(best.of_limit)} of what no communication at all would give` : "") + ".";
  const made = section("standings", "Standings", "Step time (median over turns) and traffic after warm-up. The limit (noop) exchanges nothing and so trains nothing together; its loss would say nothing.");
  const rows = [...data.standings].sort((a, b) => (a.ms_per_step ?? Infinity) - (b.ms_per_step ?? Infinity))
    .map((row) => ({ ...row, style: row.failure ? "out" : row.method === "noop" ? "limit" : "" }));
  grid(made, [
    { title: "method", text: true, show: (row) => row.failure ? `${row.method} (${row.status})` : row.method },
    { title: "ms/step", show: (row) => number(row.ms_per_step) }, { title: "vs dense", show: (row) => times(row.over_dense) },
    { title: "of the limit", show: (row) => percent(row.of_limit) }, { title: "sent a step", show: (row) => bytes(row.wire_bytes_per_step) },
    { title: "held-out loss", show: (row) => number(row.loss) }, { title: "accuracy", show: (row) => percent(row.accuracy) },
    ...(rows.some((row) => row.seconds_to_target) ? [{ title: "s to target", show: (row) => number(row.seconds_to_target) }] : []),
  ], rows);
  for (const row of rows.filter((entry) => entry.failure)) made.append(node("p", { class: "note warning" }, `${row.method} ${row.status}: ${row.failure}`));
}

const curves = (x) => data.runs.map((run, index) => ({ name: run.name, colour: colour(index),
  points: smooth(run.loss.map((point) => [point[x], point[2]])), dots: run.held_out.map((point) => [point[x], point[2]]) }))
  .filter((line) => line.name !== "noop" && line.points.length + line.dots.length);
const losses = "Lines: training loss, mean of five steps. Dots: held-out loss. Tap a name to hide or show it.";
if (curves(0).length) {
  lineChart(section("loss-time", "Loss against time", losses + " Time counts a method's own turns only."), curves(0),
    { id: "loss-time", x: "training time (s)", y: "loss (nats)", formatX: (value) => `${number(value)} s` });
  lineChart(section("loss-bytes", "Loss against bytes", "What one machine has put on its link. The axis is logarithmic."), curves(1),
    { id: "loss-bytes", x: "bytes sent per machine", y: "loss (nats)", logX: true, formatX: bytes });
} else section("loss-time", "Loss", "These records hold no losses. Write {\"event\": \"loss\", \"step\": ..., \"loss\": ..., \"time\": ...} lines to see curves.");

const splits = data.runs.filter((run) => run.split).map((run) => ({ name: run.name, ...run.split }));
if (splits.length) barChart(section("split", "Where a step's time goes", splits.some((row) => row.overlap_unknown)
  ? "Communication is shown in full: without a race against no communication, what of it is hidden behind compute is not known."
  : "Compute is the step time of the limit. What a method takes beyond it is compression, as it measured itself, and communication that compute did not hide."),
  splits, [["compute", "compute"], ["compress", "compression"], ["communicate", "exposed communication"]]);

const planned = data.runs.filter((run) => run.layers.length);
if (planned.length) chooser(section("plan", "The plan, layer by layer", "At the end of the run. Error is the part of a gradient's norm that a step did not send; it stays in the residual."),
  "run", planned.map((run) => ({ label: run.name, value: run.layers })), (body, layers) => grid(body, [
    { title: "layer", text: true, show: (row) => row.name }, { title: "shape", show: (row) => row.shape },
    { title: "size", show: (row) => row.numel === null ? "–" : bytes(4 * row.numel) }, { title: "compressor", text: true, show: (row) => row.plan },
    { title: "sent a step", show: (row) => bytes(row.wire_bytes) },
    { title: "smaller by", show: (row) => row.wire_bytes && row.numel ? times(4 * row.numel / row.wire_bytes) : "–" },
    { title: "error", show: (row) => number(row.error) }, { title: "residual norm", show: (row) => number(row.residual_norm) },
  ], layers));

const timed = data.runs.flatMap((run) => run.timeline.map((step) => ({ label: `${run.name}, step ${step.step}`, value: step.spans })))
  .sort((a, b) => new Set(b.value.map((span) => span[0])).size - new Set(a.value.map((span) => span[0])).size);
if (timed.length) chooser(section("timeline", "The timeline of one step", "Wheel or pinch to zoom, drag to move."), "step", timed, laneChart);

const changed = data.runs.filter((run) => run.changes.length);
if (changed.length) chooser(section("changes", "How the plan changed", "Every change of a layer's compressor, and why."),
  "run", changed.map((run) => ({ label: run.name, value: run })), (body, run) => {
    if (run.traffic.length) lineChart(body, [{ name: "bytes a step", colour: colour(0), points: run.traffic, dots: [] }],
      { id: "traffic", x: "step", y: "bytes", formatX: (value) => number(value) });
    grid(body, [{ title: "step", show: (row) => row.step }, { title: "layer", text: true, show: (row) => row.layer },
      { title: "from", text: true, show: (row) => row.old ?? "–" }, { title: "to", text: true, show: (row) => row.new ?? "–" },
      { title: "why", text: true, show: (row) => row.why }], run.changes);
  });

const facts = section("conditions", "Conditions");
if (data.paced) facts.append(node("p", { class: "warning" }, "This network was PACED, not real: transfers on loopback were held back to the modelled rate, and bytes are arithmetic."));
facts.append(node("dl", {}, ...Object.entries(data.conditions).flatMap(([key, value]) => [node("dt", {}, key), node("dd", {}, value)])));
