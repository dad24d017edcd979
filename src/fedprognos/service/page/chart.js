// Pictures as SVG, drawn by hand: no library, no inline style, nothing but numbers and text nodes.
const Chart = (function () {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";

  function make(name, attributes, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  }

  const round = (x) => Math.round(x * 10) / 10;
  const path = (points) => points.map((p) => round(p[0]) + "," + round(p[1])).join(" ");

  function spark(values, width, height, label, band) {
    const svg = make("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, width, height });
    if (label) {
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", label);
    } else svg.setAttribute("aria-hidden", "true");
    if (values.length < 2) return svg;
    let low = Math.min(...values);
    let high = Math.max(...values);
    const least = band ? Math.max(band[1] - band[0], 1e-12) / 4 : Math.max(Math.abs(high), Math.abs(low), 1e-12) * 1e-3;
    if (high - low < least) [low, high] = [low - least, high + least];
    const x = (k) => 2 + (k / (values.length - 1)) * (width - 6);
    const y = (v) => height - 3 - ((v - low) / (high - low)) * (height - 6);
    if (band) {
      const [top, bottom] = [y(band[1]), y(band[0])].map((v) => round(Math.max(0, Math.min(height, v))));
      svg.append(make("rect", { class: "normal", x: 0, y: top, width, height: Math.max(bottom - top, 0) }));
    }
    svg.append(make("polyline", { class: "line", points: path(values.map((v, k) => [x(k), y(v)])) }));
    svg.append(make("circle", { class: "dot", cx: round(x(values.length - 1)), cy: round(y(values.at(-1))), r: 2.4 }));
    return svg;
  }

  // Value with its interval on a common scale, and the threshold as a tick.
  function span(health, threshold, most, width) {
    const svg = make("svg", { viewBox: `0 0 ${width} 18`, width, height: 18, "aria-hidden": "true" });
    const x = (v) => 4 + (Math.max(0, Math.min(v, most)) / most) * (width - 8);
    svg.append(make("rect", { class: "track", x: 4, y: 7, width: width - 8, height: 4, rx: 2 }));
    if (health && health.value !== null && most > 0) {
      if (health.low !== null || health.high !== null) {
        const a = x(health.low === null ? 0 : health.low);
        const b = x(health.high === null ? most : health.high);
        svg.append(make("rect", { class: "interval", x: round(a), y: 4, width: round(Math.max(b - a, 1)), height: 10, rx: 3 }));
      }
      if (threshold !== null) svg.append(make("line", { class: "tick", x1: x(threshold), x2: x(threshold), y1: 1, y2: 17 }));
      svg.append(make("circle", { class: Words.distrusted(health) ? "hollow" : "dot", cx: round(x(health.value)), cy: 9, r: 4.5 }));
    }
    return svg;
  }

  // A share between -1 and 1 as a bar to the left or right of the middle.
  function effect(share, width) {
    const svg = make("svg", { class: "effect", viewBox: `0 0 ${width} 14`, width, height: 14, "aria-hidden": "true" });
    const middle = width / 2;
    const reach = round(Math.abs(share) * (middle - 2));
    svg.append(make("rect", { class: share < 0 ? "worse" : "better", x: share < 0 ? middle - reach : middle, y: 2, width: Math.max(reach, 0.5), height: 10, rx: 2 }));
    svg.append(make("line", { class: "zero", x1: middle, x2: middle, y1: 0, y2: 14 }));
    return svg;
  }

  function ticks(low, high, about) {
    const raw = (high - low) / about;
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
    const found = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) found.push(Number(v.toPrecision(10)));
    return found;
  }

  function trend(box, unit, fleet, readout, format) {
    const known = unit.history.filter((h) => h.value !== null);
    box.replaceChildren();
    if (!known.length) return;
    const width = Math.max(280, box.clientWidth);
    const height = width < 500 ? 250 : 340;
    const left = 48, right = 14, top = 14, bottom = 42;
    const last = known.at(-1);
    const ahead = unit.forecast;
    const first = known[0].position;
    const reach = Math.max(last.position - first, 10);
    let end = last.position;
    if (ahead && ahead.slope < 0) {
      const far = last.position + 1.5 * reach;
      const goals = [ahead.due_high, ahead.due, last.position + last.value / -ahead.slope].filter((v) => v !== null);
      end = Math.min(Math.max(...goals, last.position), far);
    }
    if (end - first < 5) end = first + 5;
    const highs = known.flatMap((h) => [h.value, h.high === null ? h.value : h.high]);
    const all = fleet.threshold === null ? highs : [...highs, fleet.threshold * 1.1];
    const most = Math.max(...all) * 1.05 || 1;
    const lows = known.flatMap((h) => [h.value, h.low === null ? h.value : h.low]);
    const least = fleet.task === "rul" ? 0 : Math.max(0, Math.min(...lows, fleet.threshold === null ? Infinity : fleet.threshold) * 0.95);
    const x = (p) => left + ((p - first) / (end - first)) * (width - left - right);
    const y = (v) => top + (1 - (Math.min(Math.max(v, least), most) - least) / (most - least)) * (height - top - bottom);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });

    for (const v of ticks(least, most, 6)) {
      svg.append(make("line", { class: "axis", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
      svg.append(make("text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, String(v)));
    }
    for (const p of ticks(first, end, width < 500 ? 4 : 8)) {
      svg.append(make("text", { x: x(p), y: height - bottom + 18, "text-anchor": "middle" }, Words.dateOf(p) ? Words.dateOf(p).slice(0, 10) : String(p)));
    }
    svg.append(make("text", { x: width - right, y: height - 5, "text-anchor": "end" }, fleet.position_name));

    const bounded = known.filter((h) => h.low !== null || h.high !== null);
    if (bounded.length > 1) {
      const upper = bounded.map((h) => [x(h.position), y(h.high === null ? most : h.high)]);
      const lower = bounded.map((h) => [x(h.position), y(h.low === null ? least : h.low)]).reverse();
      svg.append(make("polygon", { class: "band", points: path([...upper, ...lower]) }));
    }
    if (ahead && ahead.slope < 0 && end > last.position) {
      const steps = Array.from({ length: 101 }, (_, k) => last.position + ((end - last.position) * k) / 100);
      const at = (from) => (p) => Math.max(from + ahead.slope * (p - last.position), least);
      const falls = steps.filter((p) => last.value + ahead.slope * (p - last.position) >= least);
      if (last.low !== null || last.high !== null) {
        const up = last.high === null ? () => most : at(last.high); // "or more" stays without an upper end
        const down = at(last.low === null ? least : last.low);
        const points = [...steps.map((p) => [x(p), y(up(p))]), ...steps.map((p) => [x(p), y(down(p))]).reverse()];
        svg.append(make("polygon", { class: "ahead", points: path(points) }));
      }
      svg.append(make("polyline", { class: "dashed", points: path(falls.map((p) => [x(p), y(at(last.value)(p))])) }));
    }
    if (fleet.threshold !== null) {
      const level = y(fleet.threshold);
      svg.append(make("line", { class: "limit", x1: left, x2: width - right, y1: level, y2: level }));
      svg.append(make("text", { class: "limit-text", x: left + 6, y: level - 6 }, "maintenance due"));
    }
    let labels = 0;
    for (const event of unit.maintenance) {
      const inside = (event.unit === unit.unit || event.begins === unit.unit) && event.position >= first && event.position <= end;
      if (event.position === null || !inside) continue;
      const mark = make("g", { class: "done" });
      mark.append(make("title", {}, `${Maintenance.words(event)}, by ${event.who}`));
      mark.append(make("line", { x1: x(event.position), x2: x(event.position), y1: top, y2: height - bottom }));
      const late = x(event.position) > width / 2;
      mark.append(make("text", { x: x(event.position) + (late ? -5 : 5), y: top + 10 + 16 * (labels++ % 4), "text-anchor": late ? "end" : "start" }, Maintenance.words(event)));
      svg.append(mark);
    }
    known.forEach((h, k) => { // a line for each run of values that are trusted alike, from the last value of the run before
      if (k && Words.distrusted(h) === Words.distrusted(known[k - 1])) return;
      let stop = k + 1;
      while (stop < known.length && Words.distrusted(known[stop]) === Words.distrusted(h)) stop++;
      const run = known.slice(Math.max(k - 1, 0), stop).map((each) => [x(each.position), y(each.value)]);
      svg.append(make("polyline", { class: Words.distrusted(h) ? "line distrusted" : "line", points: path(run) }));
    });
    svg.append(make("circle", { class: Words.distrusted(last) ? "hollow" : "dot", cx: x(last.position), cy: y(last.value), r: 4.5 }));

    const guide = make("line", { class: "guide", y1: top, y2: height - bottom, visibility: "hidden" });
    svg.append(guide);
    svg.addEventListener("pointermove", (event) => {
      const at = ((event.clientX - svg.getBoundingClientRect().left) / svg.getBoundingClientRect().width) * width;
      let near = known[0];
      for (const h of known) if (Math.abs(x(h.position) - at) < Math.abs(x(near.position) - at)) near = h;
      guide.setAttribute("x1", x(near.position));
      guide.setAttribute("x2", x(near.position));
      guide.setAttribute("visibility", "visible");
      readout.textContent = `${Words.place(near.position, fleet.position_name)}: ${format(near)}`;
    });
    svg.addEventListener("pointerleave", () => {
      guide.setAttribute("visibility", "hidden");
      readout.textContent = "";
    });
    box.append(svg);
  }

  return { spark, span, effect, trend };
})();
