(function () {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { responsive: true, displaylogo: false, displayModeBar: false };
  const drawn = new Set();

  function ink(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim() || name;
  }

  // Colours are names of CSS variables; everything else is left alone, names of units above all.
  function painted(value, key) {
    if (Array.isArray(value)) return value.map((item) => painted(item, key));
    if (value && typeof value === "object") {
      const copy = {};
      for (const [k, v] of Object.entries(value)) copy[k] = painted(v, k);
      return copy;
    }
    return typeof value === "string" && key && /color(scale)?$/.test(key) ? ink(value) : value;
  }

  function switchedOff(figure) {
    const boxes = figure.querySelectorAll(".chips input");
    return new Set(Array.from(boxes).filter((box) => !box.checked).map((box) => box.value));
  }

  function draw(figure) {
    const plots = figure.querySelector(".plots");
    const select = figure.querySelector("select");
    const panels = figures[figure.dataset.figure][select ? Number(select.value) : 0];
    const off = switchedOff(figure);
    while (plots.children.length > panels.length) {
      Plotly.purge(plots.lastElementChild.querySelector(".plot"));
      plots.lastElementChild.remove();
    }
    // All boxes before the first plot: a plot takes the width its box has then.
    while (plots.children.length < panels.length) {
      const box = document.createElement("div");
      box.className = "panel";
      box.append(document.createElement("p"), document.createElement("div"));
      box.firstElementChild.className = "panel-title";
      box.lastElementChild.className = "plot";
      box.lastElementChild.id = plots.id + "-" + plots.children.length;
      box.lastElementChild.setAttribute("role", "img");
      plots.append(box);
    }
    panels.forEach((panel, k) => {
      const box = plots.children[k];
      const title = box.firstElementChild;
      const plot = box.lastElementChild;
      title.textContent = panel.title;
      title.hidden = !panel.title;
      plot.setAttribute("aria-label", plots.dataset.label + (panel.title ? ": " + panel.title : ""));
      plot.style.height = panel.height + "px";
      const data = painted(panel.data).map((trace) => {
        if (trace.meta && trace.meta.key !== undefined) trace.visible = !off.has(trace.meta.key);
        return trace;
      });
      Plotly.react(plot, data, Object.assign(painted(panel.layout), { height: panel.height, autosize: true }), config);
    });
    drawn.add(figure);
  }

  function attempt(figure) {
    try {
      draw(figure);
    } catch (error) {
      const text = document.createElement("p");
      text.className = "missing failed";
      text.textContent = "This figure could not be drawn: " + error.message;
      figure.append(text);
    }
  }

  // A closed fold hides its content without taking its place away, so ask for the fold as well.
  function seen(figure) {
    return figure.offsetParent && !figure.closest("details:not([open])");
  }

  // One after another, so that the page can be read and scrolled meanwhile.
  function drawVisible() {
    const waiting = Array.from(document.querySelectorAll("[data-figure]")).filter((f) => seen(f) && !drawn.has(f));
    const next = () => {
      const figure = waiting.shift();
      if (!figure) return document.documentElement.setAttribute("data-drawn", String(drawn.size));
      attempt(figure);
      setTimeout(next, 0);
    };
    next();
  }

  function redraw() {
    drawn.forEach((figure) => (seen(figure) ? attempt(figure) : drawn.delete(figure)));
  }

  // Tables wider than their box say so.
  function measure() {
    document.querySelectorAll(".scroll").forEach((box) => box.classList.toggle("more", box.scrollWidth > box.clientWidth + 1));
  }

  function resize() {
    drawn.forEach((figure) => figure.querySelectorAll(".plot").forEach((plot) => Plotly.Plots.resize(plot)));
  }

  function showScenario(number) {
    document.querySelectorAll("[data-scenario]").forEach((part) => (part.hidden = part.dataset.scenario !== number));
    document.querySelectorAll("main > section").forEach((section) => {
      const parts = Array.from(section.querySelectorAll("[data-scenario]"));
      section.hidden = parts.length > 0 && parts.every((part) => part.hidden);
    });
    drawVisible();
    measure();
  }

  // A link into a fold opens it.
  function unfold() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.querySelector("details") || target; fold; fold = fold.parentElement) {
      if (fold.tagName === "DETAILS") fold.open = true;
    }
  }

  function sortBy(header) {
    const table = header.closest("table");
    const column = Array.from(header.parentElement.children).indexOf(header);
    const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    header.parentElement.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    const value = (row) => {
      const cell = row.children[column];
      return cell.dataset.sort === undefined ? cell.textContent.trim() : cell.dataset.sort === "" ? null : Number(cell.dataset.sort);
    };
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort((first, second) => {
      const a = value(first);
      const b = value(second);
      if (a === null || b === null) return (a === null) - (b === null);
      return direction * (typeof a === "number" ? a - b : a.localeCompare(b));
    });
    table.tBodies[0].append(...rows);
  }

  document.querySelectorAll("[data-figure]").forEach((figure) => {
    figure.addEventListener("change", () => attempt(figure));
  });
  document.querySelectorAll("table.sortable thead th").forEach((header) => {
    header.querySelector("button").addEventListener("click", () => sortBy(header));
  });
  document.querySelectorAll(".switch input").forEach((input) => {
    input.addEventListener("change", () => showScenario(input.value));
  });
  document.querySelectorAll("details").forEach((fold) => {
    fold.addEventListener("toggle", () => {
      drawVisible();
      measure();
    });
  });
  addEventListener("resize", measure);
  addEventListener("hashchange", unfold);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // On paper: light, unfolded, and plots as wide as the sheet, which CSS alone cannot tell them.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = Array.from(document.querySelectorAll("details:not([open])"));
    folded.forEach((fold) => (fold.open = true));
    document.documentElement.dataset.theme = "light";
    document.querySelectorAll("[data-figure]").forEach((figure) => seen(figure) && attempt(figure));
    resize();
  });
  addEventListener("afterprint", () => {
    folded.forEach((fold) => (fold.open = false));
    delete document.documentElement.dataset.theme;
    redraw();
    resize();
  });
  unfold();
  showScenario("0");
})();
