// Draws a small chart of values over time.
import {svg} from "./dom.js";

const width = 120;
const height = 32;

export class Sparkline {
  // `limit`: the value at the top, if it is fixed. `lines`: number of lines.
  constructor({slots, limit = null, lines = 1}) {
    this.slots = slots;
    this.limit = limit;
    this.areas = svg("path", {class: "area"});
    this.paths = Array.from({length: lines}, (_, i) => svg("path", {class: `line line-${i}`}));
    this.root = svg("svg", {class: "sparkline", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img"},
                    svg("line", {class: "base", x1: 0, y1: height, x2: width, y2: height}), this.areas, ...[...this.paths].reverse());
  }

  // `series`: the values of each line, newest last; null: no value at that time. `description`: text for screen
  // readers.
  draw(series, description) {
    const known = series.flat().filter((value) => value !== null);
    const top = this.limit ?? Math.max(1e-9, ...known) * 1.08;
    const points = (figures) => figures.map((value, i) => value === null ? null : [
      width - (figures.length - 1 - i) * width / (this.slots - 1),
      height - 1 - Math.min(1, value / top) * (height - 3)]);
    series.forEach((figures, i) => this.paths[i].setAttribute("d", lineOf(points(figures))));
    this.areas.setAttribute("d", areaOf(points(series[0])));
    this.root.setAttribute("aria-label", description);
  }
}

const pair = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;

function runsOf(points) {
  const runs = [[]];
  for (const point of points) {
    if (point) runs.at(-1).push(point);
    else if (runs.at(-1).length > 0) runs.push([]);
  }
  return runs.filter((run) => run.length > 0);
}

// A single point is drawn as a dot.
const lineOf = (points) => runsOf(points).map((run) => `M${run.map(pair).join("L")}${run.length === 1 ? "h.01" : ""}`).join("");

const areaOf = (points) => runsOf(points).map((run) => (
  `M${run[0][0].toFixed(1)} ${height}L${run.map(pair).join("L")}L${run.at(-1)[0].toFixed(1)} ${height}Z`)).join("");
